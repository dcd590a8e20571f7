//! Contents from Secrets and `ConfigMap`s: they reach the nodes that need them, and no other eyes.

use std::time::Instant;

use serde_json::{Value, json};
use testbed::Node;
use testbed::wait::{Seen, wait_until};

use crate::scene::{LATER, SOON, Scene, condition};

const ROLE: &str = "keeper";
const SYSTEM: &str = "nodelet-system";

fn put(scene: &Scene, kind: &str, namespace: &str, name: &str, data: &Value) {
    let part = if kind == "Secret" { "stringData" } else { "data" };
    let object = json!({
        "apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": namespace}, part: data,
    });
    scene.cluster.apply(&object.to_string()).unwrap();
}

/// A service that takes its key from a file, and notes each start.
fn class(files: &Value) -> Value {
    let unit = "[Service]\nExecStartPre=/bin/sh -c 'echo started >> /run/keeper-starts'\nExecStart=/bin/sleep infinity\n\
                [Install]\nWantedBy=multi-user.target\n";
    json!({"state": {"files": files, "units": [{"name": "keeper.service", "content": unit, "running": true}]}})
}

fn files(namespace: &str) -> Value {
    let secret = |name: &str, key: &str, namespace: &str| json!({"secretRef": {"namespace": namespace, "name": name, "key": key}});
    json!([
        {"path": "/etc/keeper/key", "contentFrom": secret("keeper", "key", SYSTEM), "restart": ["keeper.service"]},
        {"path": "/etc/keeper/shown", "mode": "0644", "contentFrom": secret("keeper", "key", SYSTEM)},
        {"path": "/etc/keeper/other", "contentFrom": secret("elsewhere", "key", namespace)},
        {"path": "/etc/keeper/map", "contentFrom": {"configMapRef": {"namespace": SYSTEM, "name": "keeper", "key": "map"}}},
    ])
}

/// Whatever speaks of a node, with the codes that it ends with: a plan may have changes, a node may not be converged.
const SAYINGS: [(&str, &[i32]); 5] = [
    ("journalctl -a --no-pager", &[0]),
    ("nodelet plan", &[0, 2]),
    ("nodelet plan -o json", &[0, 2]),
    ("nodelet status -o json", &[0, 1]),
    ("nodelet history -o json", &[0]),
];

/// Everything that may say something of a content, and must not say it itself.
fn nowhere(scene: &Scene, node: &Node, marker: &str, kept: bool) {
    use base64::Engine as _;
    // As it is kept and sent; without its ends, which depend on what stands beside it.
    let encoded = base64::engine::general_purpose::STANDARD.encode(marker);
    let encoded = &encoded[..encoded.len() - 4];
    for word in [marker, encoded] {
        // What fails says nothing, and would look like silence: each must succeed in its own way, and say something.
        for (command, codes) in SAYINGS {
            let said = node.sh(command).unwrap();
            assert!(codes.contains(&said.code()) && !said.stdout.is_empty(), "{command}: {}", said.text());
            assert!(!said.text().contains(word), "{command} says {word}");
        }
        // 1 is nothing found; more is a file that was gone before it was read, as a daemon at work makes them.
        let search = format!("grep -rlaF '{word}' /var/lib/nodelet /run/nodelet /var/cache/nodelet /tmp");
        let found = (0..5).map(|_| node.sh(&search).unwrap()).find(|done| done.code() < 2);
        let found = found.expect("a search that reads everything").stdout;
        let allowed = |path: &str| kept && path.starts_with("/var/lib/nodelet/contents-");
        assert!(found.lines().all(allowed), "{word} is in:\n{found}");
        for kinds in
            ["events,nodestates,nodeclasses,nodesets,controllerrevisions,leases,nodes,csr", "events.events.k8s.io"]
        {
            let objects = scene.cluster.kubectl(&["get", kinds, "-A", "-o", "json"]).unwrap();
            assert!(!objects.contains(word), "{word} is in one of {kinds}");
        }
        assert!(!scene.controller_log().contains(word), "{word} is in the controller's log");
    }
    let modes = node.sh("stat -c '%a %U %n' /var/lib/nodelet /var/lib/nodelet/contents-*.json").unwrap().stdout;
    let mine = |line: &str| line.starts_with("600 root") || line.starts_with("700 root");
    assert!(modes.lines().all(mine), "{modes}");
}

#[test]
fn contents_reach_their_nodes_and_nobody_else() {
    let scene = Scene::shared();
    let kubectl = |words: &[&str]| scene.cluster.kubectl(words).unwrap();
    let (first, second) = ("marker-of-the-first-key-5b1d", "marker-of-the-second-key-77c2");
    put(&scene, "Secret", SYSTEM, "keeper", &json!({"key": first}));
    put(&scene, "ConfigMap", SYSTEM, "keeper", &json!({"map": "a map"}));
    kubectl(&["create", "namespace", "apart"]);
    put(&scene, "Secret", "apart", "elsewhere", &json!({"key": "marker-from-apart-901e"}));
    let node = scene.node_of("keeper", ROLE);
    scene.node_object_of("not-keeper", "not-keeper");
    scene.class_of(ROLE, &class(&files("apart")));
    scene.set_of(ROLE);

    // In another namespace, whoever administers that one has to say yes.
    for (kind, name, what) in [("nodeclass", ROLE, "ContentsFound"), ("nodeset", "keepers", "Progressing")] {
        let object = scene
            .wait_for_object("the missing contents", kind, name, |object| condition(object, what)["status"] == "False");
        let said = condition(&object, what)["message"].as_str().unwrap();
        println!("{kind}: {said}");
        assert!(said.contains("apart/elsewhere"), "{said}");
        assert!(
            said.contains("bind the ClusterRole nodelet-contents to node-controller in the namespace apart"),
            "{said}"
        );
    }
    assert!(!node.exists("/etc/keeper/key").unwrap());
    let start = Instant::now();
    let words = ["create", "rolebinding", "contents", "--namespace=apart", "--clusterrole=nodelet-contents"];
    kubectl(&[&words[..], &["--serviceaccount=nodelet-system:node-controller"]].concat());
    scene.wait_until_applied_of(ROLE, &["keeper"], LATER);
    println!("a namespace that was allowed was read and applied after {} ms", start.elapsed().as_millis());
    let listed = node.run_sh("cd /etc/keeper; stat -c '%n %a %U:%G' *; head -c 100 key other map").unwrap();
    for line in ["key 600 root:root", "other 600 root:root", "map 644 root:root", "shown 644 root:root", "a map", first]
    {
        assert!(listed.contains(line), "no {line} in:\n{listed}");
    }
    assert!(listed.contains("marker-from-apart-901e"), "{listed}");
    nowhere(&scene, &node, first, true);
    nowhere(&scene, &node, "marker-from-apart-901e", true);

    only_this_node_reads_it(&scene);

    // Rotation: the file, the service that reads it, and nothing of the old one.
    let starts = || node.run_sh("grep -c started /run/keeper-starts").unwrap();
    let before = starts();
    let start = Instant::now();
    put(&scene, "Secret", SYSTEM, "keeper", &json!({"key": second}));
    node.wait_for("the new key", SOON, &format!("grep -q {second} /etc/keeper/key")).unwrap();
    let written = start.elapsed();
    node.wait_for("the restart", SOON, &format!("test $(grep -c started /run/keeper-starts) -gt {before}")).unwrap();
    println!(
        "a rotation was written after {} ms, and in use after {} ms",
        written.as_millis(),
        start.elapsed().as_millis()
    );
    scene.wait_until_applied_of(ROLE, &["keeper"], SOON);
    assert_eq!(starts().parse::<u32>().unwrap(), before.parse::<u32>().unwrap() + 1, "restarted once");
    nowhere(&scene, &node, second, true);
    nowhere(&scene, &node, first, true);

    // A key that is gone is said, and the node stays as it is.
    let revision = scene.state("keeper")["spec"].clone();
    put(&scene, "ConfigMap", SYSTEM, "keeper", &json!({"other": "x"}));
    for (kind, name, what) in [("nodeclass", ROLE, "ContentsFound"), ("nodeset", "keepers", "Progressing")] {
        let object =
            scene.wait_for_object("the missing key", kind, name, |object| condition(object, what)["status"] == "False");
        let said = condition(&object, what)["message"].as_str().unwrap().to_owned();
        println!("{kind}: {said}");
        assert!(said.contains("keeper") && said.contains("map"), "{said}");
    }
    assert_eq!(scene.state("keeper")["spec"], revision);
    assert_eq!(node.read_file("/etc/keeper/map").unwrap(), "a map");
    put(&scene, "ConfigMap", SYSTEM, "keeper", &json!({"map": "another map"}));
    node.wait_for("the key to be back", SOON, "grep -q another /etc/keeper/map").unwrap();

    leaves_nothing(&scene, &node, second);
}

/// The node's own Secret, tried by those who might want it.
fn only_this_node_reads_it(scene: &Scene) {
    let name = scene.state("keeper")["spec"]["secrets"]["name"].as_str().unwrap().to_owned();
    let get = ["get", "secret", &name, "-n", SYSTEM];
    let own = scene.credential("nodelet:keeper", &["nodelet:nodes"]);
    scene.cluster.kubectl_as(&own, &get).unwrap();
    for (user, group) in [("nodelet:not-keeper", "nodelet:nodes"), ("system:node:not-keeper", "system:nodes")] {
        let other = scene.credential(user, &[group]);
        let error = format!("{:#}", scene.cluster.kubectl_as(&other, &get).unwrap_err());
        assert!(error.contains("Forbidden"), "{user}: {error}");
    }
    for words in [["get", "secret", "keeper", "-n", SYSTEM], ["get", "secret", "elsewhere", "-n", "apart"]] {
        let error = format!("{:#}", scene.cluster.kubectl_as(&own, &words).unwrap_err());
        assert!(error.contains("Forbidden"), "the source itself is not for nodes: {error}");
    }
    let secrets = scene.cluster.kubectl(&["get", "secrets", "-n", SYSTEM, "-o", "name"]).unwrap();
    assert!(!secrets.contains("not-keeper"), "a node whose class takes nothing has none: {secrets}");
}

/// Drift without a cluster, a file that becomes an ordinary one, and a node that leaves its set.
fn leaves_nothing(scene: &Scene, node: &Node, marker: &str) {
    node.network_cut().unwrap();
    let start = Instant::now();
    node.write_file("/etc/keeper/key", "drifted", 0o644).unwrap();
    node.wait_for("the repair", SOON, &format!("grep -q {marker} /etc/keeper/key")).unwrap();
    println!("without the API server the secret was back after {} ms", start.elapsed().as_millis());
    assert_eq!(node.run(&["stat", "-c", "%a", "/etc/keeper/key"]).unwrap(), "600");
    node.network_restore().unwrap();

    // The plan of a file that was a secret shows nothing of it, and nothing of it is kept.
    let ordinary = json!([{"path": "/etc/keeper/key", "content": "plain\n", "mode": "0644"}]);
    let toml = "[[files]]\npath = \"/etc/keeper/key\"\ncontent = \"plain\"\nmode = \"0644\"\n";
    node.write_file("/root/state.toml", toml, 0o600).unwrap();
    let plan = node.sh("nodelet plan /root/state.toml").unwrap();
    assert!(plan.text().contains("/etc/keeper/key") && !plan.text().contains(marker), "{}", plan.text());
    node.run(&["systemctl", "restart", "nodelet.service"]).unwrap();
    scene.class_of(ROLE, &class(&ordinary));
    scene.wait_until_applied_of(ROLE, &["keeper"], LATER);
    assert_eq!(node.read_file("/etc/keeper/key").unwrap(), "plain");
    nowhere(scene, node, marker, true);
    wait_until("the node's Secret to be gone", SOON, || {
        let secrets = scene.cluster.kubectl(&["get", "secrets", "-n", SYSTEM, "-o", "name"])?;
        Ok(if secrets.contains("nodelet-contents.keeper") { Seen::not_yet(secrets) } else { Seen::Done(()) })
    })
    .unwrap();

    // Again with contents, and then the node is nobody's any more.
    scene.class_of(ROLE, &class(&files("apart")));
    scene.wait_until_applied_of(ROLE, &["keeper"], SOON);
    scene.cluster.kubectl(&["delete", "nodeset", "keepers"]).unwrap();
    wait_until("the Secret of a node that left to be gone", SOON, || {
        let secrets = scene.cluster.kubectl(&["get", "secrets", "-n", SYSTEM, "-o", "name"])?;
        Ok(if secrets.contains("nodelet-contents.keeper") { Seen::not_yet(secrets) } else { Seen::Done(()) })
    })
    .unwrap();
}
