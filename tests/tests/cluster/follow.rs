//! Nodes that follow the cluster: a class changes, and so do they.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;
use testbed::cluster::audit::Audit;
use testbed::cluster::{Cluster, Component, TOKEN};
use testbed::image::Kind;
use testbed::slot::Slot;
use testbed::{Node, NodeOptions, nodelet};

const SOON: Duration = Duration::from_secs(60);
/// Who the controller is where it runs as config/default has it.
pub(crate) const CONTROLLER: &str = "system:serviceaccount:nodelet-system:node-controller";

/// A control plane with the custom resources, and one controller.
pub(crate) struct Scene {
    pub(crate) cluster: Cluster,
    controller: Component,
}

impl Scene {
    pub(crate) fn new() -> Self {
        let cluster = Cluster::start(&Slot::take().unwrap()).unwrap();
        Self::define_in(&cluster);
        let controller = cluster.controller("one").unwrap();
        controller.start().unwrap();
        Self { cluster, controller }
    }

    /// With a log of what nodelets and the controller ask the API server for. The controller has its own credential.
    pub(crate) fn audited() -> (Self, Audit) {
        let slot = Slot::take().unwrap();
        let audit = Audit::of(&slot, &[CONTROLLER], &["nodelet:nodes"]).unwrap();
        let cluster = Cluster::start_with(&slot, &audit.flags()).unwrap();
        Self::define_in(&cluster);
        let path = slot.dir().join("controller.conf");
        let groups = ["system:serviceaccounts", "system:serviceaccounts:nodelet-system"];
        std::fs::write(&path, cluster.kubeconfig_for(CONTROLLER, &groups).unwrap()).unwrap();
        let controller = cluster.controller_with("one", &path).unwrap();
        controller.start().unwrap();
        (Self { cluster, controller }, audit)
    }

    fn define_in(cluster: &Cluster) {
        crate::objects::define_in(cluster);
        cluster.kubectl(&["create", "namespace", "nodelet-system"]).unwrap();
        for part in ["rbac", "admission"] {
            let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../config").join(part);
            cluster.kubectl(&["apply", "--server-side", "-k", directory.to_str().unwrap()]).unwrap();
        }
    }

    /// A node with nodelet that follows the cluster, and its Node object.
    pub(crate) fn node(&self, name: &str) -> Node {
        let node = nodelet::node_in(self.cluster.slot(), NodeOptions::new(name, Kind::Base)).unwrap();
        let kubeconfig = self.cluster.bootstrap_kubeconfig("/etc/nodelet/token");
        node.write_file("/etc/nodelet/kubeconfig", kubeconfig, 0o600).unwrap();
        node.write_file("/etc/nodelet/token", TOKEN, 0o600).unwrap();
        let settings = "[cluster]\nkubeconfig = \"/etc/nodelet/kubeconfig\"\n";
        node.write_file("/etc/nodelet/nodelet.toml.d/cluster.toml", settings, 0o600).unwrap();
        nodelet::install(&node, None).unwrap();
        self.node_object(name);
        node
    }

    /// A Node without a machine.
    pub(crate) fn node_object(&self, name: &str) {
        self.node_objects(&[name]);
    }

    /// Several of them.
    pub(crate) fn node_objects(&self, names: &[&str]) {
        let object = |name: &&str| {
            format!("apiVersion: v1\nkind: Node\nmetadata: {{name: {name}, labels: {{role: worker}}}}\n---\n")
        };
        self.cluster.apply(&names.iter().map(object).collect::<String>()).unwrap();
    }

    pub(crate) fn class(&self, content: &str) {
        let class = format!(
            "apiVersion: nodelet.dev/v1alpha1\nkind: NodeClass\nmetadata: {{name: worker}}\nspec:\n  state:\n    files:\n\
             \x20   - {{path: /etc/from-cluster, content: \"{content} ${{node.name}}\"}}\n"
        );
        self.cluster.apply(&class).unwrap();
    }

    pub(crate) fn set(&self) {
        let set = "apiVersion: nodelet.dev/v1alpha1\nkind: NodeSet\nmetadata: {name: workers}\n\
                   spec: {classRef: {name: worker}, selector: {matchLabels: {role: worker}}}\n";
        self.cluster.apply(set).unwrap();
    }

    pub(crate) fn state(&self, node: &str) -> Value {
        let text = self.cluster.kubectl(&["get", "nodestate", node, "-o", "json"]).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    /// Waits until the nodes' credentials may read their states.
    pub(crate) fn wait_for_rights(&self, nodes: &[&str]) {
        self.wait_for_rights_within(nodes, SOON);
    }

    pub(crate) fn wait_for_rights_within(&self, nodes: &[&str], limit: Duration) {
        testbed::wait_until("the nodes' rights", limit, || {
            let found = self.cluster.kubectl(&["get", "clusterrolebindings", "-o", "name"]).unwrap_or_default();
            let there = |node: &&str| found.lines().any(|line| line.ends_with(&format!("/nodelet:{node}")));
            let late = nodes.iter().find(|node| !there(node));
            Ok(late.map_or(testbed::wait::Seen::Done(()), testbed::wait::Seen::not_yet))
        })
        .unwrap();
    }

    /// Waits until all nodes report that they are what they must be.
    pub(crate) fn wait_until_applied(&self, nodes: &[&str]) {
        testbed::wait_until("the nodes to be as the class wants them", SOON, || {
            let late = nodes.iter().map(|node| (*node, self.state(node))).find(|(_, state)| {
                let applied = &state["status"]["applied"]["revision"];
                applied.is_null() || *applied != state["spec"]["revision"]
            });
            Ok(match late {
                None => testbed::wait::Seen::Done(()),
                Some((node, state)) => testbed::wait::Seen::not_yet(format!("{node}: {state}")),
            })
        })
        .unwrap();
    }
}

#[test]
fn a_class_reaches_its_nodes_and_they_say_so() {
    let scene = Scene::new();
    let names = ["follow-1", "follow-2", "follow-3"];
    let nodes: Vec<Node> = names.iter().map(|name| scene.node(name)).collect();
    scene.class("one");
    scene.set();
    testbed::wait_until("the states", SOON, || {
        let found = scene.cluster.kubectl(&["get", "nodestates", "-o", "name"]).unwrap_or_default();
        Ok(if found.lines().count() == 3 { testbed::wait::Seen::Done(()) } else { testbed::wait::Seen::not_yet(found) })
    })
    .unwrap();
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
    testbed::wait_until("the revision to change", SOON, || {
        let late = names.iter().any(|name| scene.state(name)["spec"]["revision"] == state["spec"]["revision"]);
        Ok(if late { testbed::wait::Seen::not_yet("the old one") } else { testbed::wait::Seen::Done(()) })
    })
    .unwrap();
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
    scene.class("one");
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
    let lease = "apiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata: {name: own, namespace: nodelet-system}\n";
    let next = testbed::cluster::certificate_request("nodelet:own", &["nodelet:nodes"]).unwrap();
    let next = format!(
        "apiVersion: certificates.k8s.io/v1\nkind: CertificateSigningRequest\nmetadata: {{name: own-next}}\nspec:\n  \
         {{signerName: kubernetes.io/kube-apiserver-client, usages: [client auth, digital signature], request: {next}}}\n"
    );

    let allowed: [&[&str]; 5] = [
        &["get", "nodestate", "own"],
        &["patch", "nodestate", "own", "--subresource=status", "--type=merge", "-p", status],
        &["get", "controllerrevision", &revision, system],
        &["apply", "--server-side", "-f", &file("lease.yaml", lease)],
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
    let refused: [&[&str]; 12] = [
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
