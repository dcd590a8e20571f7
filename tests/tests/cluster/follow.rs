//! Nodes that follow the cluster: a class changes, and so do they.

use std::time::{Duration, Instant};

use serde_json::json;
use testbed::Node;

use crate::scene::{SOON, Scene};

#[test]
fn a_class_reaches_its_nodes_and_they_say_so() {
    let scene = Scene::new();
    let names = ["follow-1", "follow-2", "follow-3"];
    let nodes: Vec<Node> = names.iter().map(|name| scene.node(name)).collect();
    scene.class("one");
    scene.set();
    scene.wait_until_applied(&names);
    for (node, name) in nodes.iter().zip(names) {
        assert_eq!(node.read_file("/etc/from-cluster").unwrap(), format!("one {name}"));
        let status = node.run(&["nodelet", "status"]).unwrap();
        assert!(status.contains("the cluster took over") && status.contains("Cluster: followed"), "{status}");
    }
    let state = scene.state("follow-1");
    assert_eq!(state["status"]["conditions"][0]["type"], "Converged", "{state}");
    assert_eq!(state["status"]["conditions"][0]["status"], "True", "{state}");
    assert_eq!(state["status"]["os"]["id"], "debian", "{state}");

    // A change, measured until it is reported back from all of them.
    let start = Instant::now();
    scene.class("two");
    scene.wait_until_applied(&names);
    println!("a change reached 3 nodes and was reported back after {} ms", start.elapsed().as_millis());
    for (node, name) in nodes.iter().zip(names) {
        assert_eq!(node.read_file("/etc/from-cluster").unwrap(), format!("two {name}"));
    }
    let set = scene.cluster.kubectl(&["get", "nset", "workers", "--no-headers"]).unwrap();
    assert!(set.contains("worker") && set.contains("Updated"), "{set}");

    // Without the API server drift is repaired all the same, and afterwards it is followed again.
    // Killed: asked to stop, it would wait a minute for those who watch.
    scene.cluster.api_server.kill().unwrap();
    nodes[0].write_file("/etc/from-cluster", "x", 0o644).unwrap();
    nodes[0].wait_for("the repair", SOON, "grep -q two /etc/from-cluster").unwrap();
    scene.controller.kill().unwrap();
    scene.cluster.api_server.start().unwrap();
    scene.cluster.wait_until_ready().unwrap();
    scene.controller.start().unwrap();
    scene.class("three");
    nodes[0].wait_for("the next class", Duration::from_secs(120), "grep -q three /etc/from-cluster").unwrap();
}

/// What a node's credential may do, tried at the API server itself.
#[tokio::test]
async fn a_node_reaches_its_own_state_and_nothing_else() {
    let scene = Scene::new();
    for name in ["own", "other"] {
        scene.node_object(name);
    }
    let secret = ["create", "secret", "generic", "source", "--namespace=nodelet-system", "--from-literal=key=hush"];
    scene.cluster.kubectl(&secret).unwrap();
    let from = json!({"secretRef": {"namespace": "nodelet-system", "name": "source", "key": "key"}});
    scene.class_of("worker", &json!({"state": {"files": [{"path": "/etc/key", "contentFrom": from}]}}));
    scene.set();
    scene.wait_for_rights(&["own", "other"]);
    let path = scene.cluster.slot().dir().join("own.conf");
    std::fs::write(&path, scene.cluster.kubeconfig_for("nodelet:own", &["nodelet:nodes"]).unwrap()).unwrap();
    let revision = scene.state("own")["spec"]["revision"].as_str().unwrap().to_owned();
    let tried = |words: &[&str]| scene.cluster.kubectl_as(&path, words);
    let spec = r#"{"spec": {"step": "Hold"}}"#;
    let status = r#"{"status": {"waitingFor": "nothing"}}"#;
    let system = "--namespace=nodelet-system";

    // What it writes besides its status: a sign of life, and a request for its next certificate.
    let file = |name: &str, object: &str| {
        let path = scene.cluster.slot().dir().join(name);
        std::fs::write(&path, object).unwrap();
        path.display().to_string()
    };
    let lease = |name: &str, namespace: &str| {
        let metadata = json!({"name": name, "namespace": namespace});
        let object = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata});
        file(&format!("{name}.{namespace}.json"), &object.to_string())
    };
    let (own_lease, others_lease) = (lease("own", "nodelet-system"), lease("other", "nodelet-system"));
    let (leaders_lease, kubelets_lease) = (lease("node-controller", "nodelet-system"), lease("own", "kube-node-lease"));
    let next = testbed::cluster::certificate_request("nodelet:own", &["nodelet:nodes"]).unwrap();
    let next = format!(
        "apiVersion: certificates.k8s.io/v1\nkind: CertificateSigningRequest\nmetadata: {{name: own-next}}\nspec:\n  \
         {{signerName: kubernetes.io/kube-apiserver-client, usages: [client auth, digital signature], request: {next}}}\n"
    );

    let allowed: [&[&str]; 6] = [
        &["get", "secret", "nodelet-contents.own", system],
        &["get", "nodestate", "own"],
        &["patch", "nodestate", "own", "--subresource=status", "--type=merge", "-p", status],
        &["get", "controllerrevision", &revision, system],
        &["apply", "--server-side", "-f", &own_lease],
        &["create", "-f", &file("next.yaml", &next)],
    ];
    for words in allowed {
        tried(words).unwrap_or_else(|error| panic!("{words:?}: {error:#}"));
    }
    // One that anybody could approve, to see that this one can't.
    let request = "apiVersion: certificates.k8s.io/v1\nkind: CertificateSigningRequest\nmetadata: {name: any}\n\
                   spec: {signerName: example.com/any, usages: [client auth], request: ";
    let encoded = testbed::cluster::certificate_request("somebody", &[]).unwrap();
    scene.cluster.apply(&format!("{request}{encoded}}}\n")).unwrap();
    let refused: [&[&str]; 21] = [
        &["get", "secret", "nodelet-contents.other", system],
        &["get", "secret", "source", system],
        &["delete", "secret", "nodelet-contents.own", system],
        &["get", "lease", "other", system],
        &["apply", "--server-side", "-f", &others_lease],
        &["apply", "--server-side", "-f", &leaders_lease],
        &["apply", "--server-side", "-f", &kubelets_lease],
        &["delete", "lease", "own", system],
        &["delete", "validatingadmissionpolicy", "nodelet-nodes"],
        &["get", "nodestate", "other"],
        &["get", "nodestates"],
        &["patch", "nodestate", "own", "--type=merge", "-p", spec],
        &["patch", "nodestate", "other", "--type=merge", "-p", spec],
        &["patch", "nodestate", "other", "--subresource=status", "--type=merge", "-p", status],
        &["delete", "nodestate", "own"],
        &["get", "controllerrevisions", system],
        &["get", "secrets", system],
        &["get", "secret", "any", "--namespace=kube-system"],
        &["get", "nodeclass", "worker"],
        &["patch", "nodeset", "workers", "--type=merge", "-p", r#"{"spec": {"paused": true}}"#],
        &["certificate", "approve", "any"],
    ];
    for words in refused {
        let error = tried(words).expect_err(&format!("{words:?}")).to_string();
        assert!(error.contains("Forbidden"), "{words:?}: {error}");
    }

    // Deleting the NodeState takes the rights away, until the controller makes both anew.
    scene.controller.stop().unwrap();
    scene.cluster.kubectl(&["delete", "nodestate", "own"]).unwrap();
    testbed::wait_until("the rights to be gone", SOON, || {
        Ok(match tried(&["get", "nodestate", "own"]) {
            Err(error) if error.to_string().contains("Forbidden") => testbed::wait::Seen::Done(()),
            other => testbed::wait::Seen::not_yet(format!("{other:?}")),
        })
    })
    .unwrap();
    scene.controller.start().unwrap();
    testbed::wait_until("the rights to be back", SOON, || {
        Ok(match tried(&["get", "nodestate", "own"]) {
            Ok(_) => testbed::wait::Seen::Done(()),
            Err(error) => testbed::wait::Seen::not_yet(format!("{error:#}")),
        })
    })
    .unwrap();
}

/// Of two controllers one acts; when it is gone, the other does.
#[test]
fn the_other_controller_takes_over() {
    let scene = Scene::new();
    let other = scene.cluster.controller("two").unwrap();
    let holder = || {
        let words =
            ["get", "lease", "node-controller", "-n", "nodelet-system", "-o", "jsonpath={.spec.holderIdentity}"];
        scene.cluster.kubectl(&words).unwrap_or_default()
    };
    let wait_for = |identity: &str| {
        testbed::wait_until(&format!("{identity} to lead"), SOON, || {
            let is = holder();
            Ok(if is == identity { testbed::wait::Seen::Done(()) } else { testbed::wait::Seen::not_yet(is) })
        })
        .unwrap();
    };
    wait_for("one");
    other.start().unwrap();
    // Let go in peace: at once. Killed: when its lease is over.
    let start = Instant::now();
    scene.controller.stop().unwrap();
    wait_for("two");
    println!("a graceful handover took {} ms", start.elapsed().as_millis());
    scene.controller.start().unwrap();
    let start = Instant::now();
    other.kill().unwrap();
    wait_for("one");
    println!("after a crash it took {} ms", start.elapsed().as_millis());
    scene.node_object("late");
    scene.class("one");
    scene.set();
    testbed::wait_until("the new leader to act", SOON, || {
        Ok(match scene.cluster.kubectl(&["get", "nodestate", "late"]) {
            Ok(_) => testbed::wait::Seen::Done(()),
            Err(error) => testbed::wait::Seen::not_yet(format!("{error:#}")),
        })
    })
    .unwrap();
}
