//! Who a node is to the cluster: how it gets in, and who does not.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use serde_json::{Value, json};
use testbed::Node;
use testbed::cluster::{TOKEN, certificate_request_with};
use testbed::command::run;
use testbed::wait::{Seen, wait_until};

use crate::scene::{LATER, SOON, Scene, TOKEN_FILE, one_file};

const ROLE: &str = "member";
const GROUP: &str = "nodelet:nodes";
const USAGES: [&str; 2] = ["client auth", "digital signature"];

/// The scene that all of these share, with their class and set.
fn scene() -> crate::scene::Shared {
    let scene = Scene::shared();
    scene.class_of(ROLE, &one_file("one"));
    scene.set_of(ROLE);
    scene
}

/// What `nodelet status` says, once it says this.
fn wait_for_words(node: &Node, words: &str) -> String {
    node.wait_for(&format!("`nodelet status` to say {words:?}"), SOON, &format!("nodelet status | grep -qF '{words}'"))
        .unwrap();
    node.sh("nodelet status").unwrap().stdout
}

/// A kubeconfig with the certificate that the node got, as a thief would make it.
fn stolen(scene: &Scene, node: &Node) -> std::path::PathBuf {
    use base64::Engine as _;
    let kept: Value = serde_json::from_str(&node.read_file("/var/lib/nodelet/identity.json").unwrap()).unwrap();
    let encode = |text: &Value| base64::engine::general_purpose::STANDARD.encode(text.as_str().unwrap());
    let user = json!({
        "client-certificate-data": encode(&kept["certificate"]["pem"]),
        "client-key-data": encode(&kept["certificate"]["key"]),
    });
    let path = scene.cluster.slot().dir().join(format!("{}-own.conf", node.name()));
    fs::write(&path, scene.cluster.kubeconfig_with(&user)).unwrap();
    path
}

fn whoami(scene: &Scene, credential: &Path) -> (String, String) {
    let said = scene.cluster.kubectl_as(credential, &["auth", "whoami", "-o", "json"]).unwrap();
    let said: Value = serde_json::from_str(&said).unwrap();
    let user = &said["status"]["userInfo"];
    (user["username"].as_str().unwrap().to_owned(), user["groups"].to_string())
}

/// The token of a person who let others read it, and then the same node's name on a second machine.
#[test]
fn a_token_for_all_to_read_is_refused_and_a_second_machine_too() {
    let scene = scene();
    let first = scene.bare_node("first");
    crate::scene::bring_token(&first, TOKEN, 0o644);
    crate::scene::join(&first, &scene.cluster.bootstrap_kubeconfig(TOKEN_FILE), "");
    scene.node_object_of("first", ROLE);
    let status = wait_for_words(&first, "chmod 0600");
    assert!(status.contains("/etc/nodelet/token can be read by others than root (mode 0644)"), "{status}");
    assert!(!status.contains(TOKEN.rsplit('.').next().unwrap()), "{status}");
    let start = Instant::now();
    first.run(&["chmod", "0600", TOKEN_FILE]).unwrap();
    scene.wait_until_applied_of(ROLE, &["first"], LATER);
    println!("after the chmod it took {} ms to join and converge", start.elapsed().as_millis());
    let identity = scene.state("first")["status"]["identity"].clone();
    for part in ["machineID", "key", "notAfter"] {
        assert!(identity[part].as_str().is_some_and(|text| !text.is_empty()), "{part}: {identity}");
    }
    let machine = first.read_file("/etc/machine-id").unwrap();
    assert_ne!(identity["machineID"], machine.trim(), "the machine's own id is not for others");
    assert_eq!(first.run(&["stat", "-c", "%a", "/var/lib/nodelet/identity.json"]).unwrap(), "600");
    let (user, groups) = whoami(&scene, &stolen(&scene, &first));
    assert_eq!(user, "nodelet:first");
    assert!(groups.contains(GROUP) && !groups.contains("bootstrappers"), "{groups}");

    // Without a credential of systemd the unit starts, and has nothing to complain of.
    let journal = first.journal("nodelet.service").unwrap();
    assert!(!journal.contains("nodelet.service:"), "systemd warns of the unit:\n{journal}");

    // Another machine with the same name, while the first one's certificate is in use.
    let second = scene.bare_node("second");
    crate::scene::bring_token(&second, TOKEN, 0o600);
    crate::scene::join(&second, &scene.cluster.bootstrap_kubeconfig(TOKEN_FILE), "[node]\nname = \"first\"\n");
    let status = wait_for_words(&second, "kubectl delete nodestate first");
    assert!(status.contains("was denied: the certificate of node first is in use by the machine"), "{status}");
    assert_eq!(scene.state("first")["status"]["identity"], identity, "the first one is still the node");
    assert!(!second.exists("/etc/from-cluster").unwrap());

    // The first one is gone; a person says so.
    first.power_cut().unwrap();
    let start = Instant::now();
    scene.cluster.kubectl(&["delete", "nodestate", "first"]).unwrap();
    second.wait_for("the file", LATER, "grep -q first /etc/from-cluster").unwrap();
    println!("after `kubectl delete nodestate` the second machine was in after {} ms", start.elapsed().as_millis());
    let state = scene.wait_for_object("the new identity", "nodestate", "first", |state| {
        state["status"]["identity"]["key"].is_string() && state["status"]["applied"]["revision"].is_string()
    });
    assert_ne!(state["status"]["identity"]["machineID"], identity["machineID"], "{state}");
}

/// A token for one node, handed over as a systemd credential.
#[test]
fn a_token_of_its_own_comes_as_a_credential_of_systemd() {
    let scene = scene();
    for name in ["credential", "credential-other"] {
        scene.node_object_of(name, ROLE);
    }
    let program = testbed::paths::program("kubectl-nodes").unwrap();
    let token =
        run(Command::new(program).args(["token", "credential", "--kubeconfig"]).arg(scene.cluster.kubeconfig()))
            .unwrap();
    let node = scene.bare_node("credential");
    node.write_file("/etc/credstore/nodelet.token", &token, 0o600).unwrap();
    crate::scene::join(&node, &scene.cluster.kubeconfig_with(&json!({})), "");
    scene.wait_until_applied_of(ROLE, &["credential"], LATER);
    let journal = node.journal("nodelet.service").unwrap();
    assert!(!journal.contains(token.rsplit('.').next().unwrap()), "{journal}");

    // What a thief of the token gets: nothing of another node.
    let thief = scene.cluster.slot().dir().join("token.conf");
    fs::write(&thief, scene.cluster.kubeconfig_with(&json!({"token": token}))).unwrap();
    let asked = Asked { name: "token-other", user: "nodelet:credential-other", ..Asked::default() };
    let answer = asked.answer(&scene, &thief);
    assert!(answer.contains("Denied") && answer.contains("may not ask for the certificate"), "{answer}");

    // A token that is none is said, and the unit starts all the same.
    node.write_file("/etc/credstore/nodelet.token", "secret-and-wrong", 0o600).unwrap();
    node.run(&["rm", "/var/lib/nodelet/identity.json"]).unwrap();
    node.run(&["systemctl", "restart", "nodelet.service"]).unwrap();
    let status = wait_for_words(&node, "is not a bootstrap token");
    assert!(status.contains("kubectl nodes token NODE") && !status.contains("secret-and-wrong"), "{status}");

    // One that is over does not stand in the way of the kubelet's credential.
    node.write_file("/etc/credstore/nodelet.token", "abcdef.0123456789abcdef", 0o600).unwrap();
    let kubelet = scene.cluster.kubeconfig_for("system:node:credential", &["system:nodes"]).unwrap();
    node.write_file("/etc/kubernetes/kubelet.conf", kubelet, 0o600).unwrap();
    scene.cluster.kubectl(&["delete", "nodestate", "credential"]).unwrap();
    node.run(&["systemctl", "restart", "nodelet.service"]).unwrap();
    scene.wait_for_object("the node to be in again", "nodestate", "credential", |state| {
        state["status"]["identity"]["key"].is_string()
    });
}

/// A request for a certificate. By default a good one.
#[derive(Clone, Copy)]
struct Asked<'a> {
    name: &'a str,
    user: &'a str,
    groups: &'a [&'a str],
    names: &'a [&'a str],
    usages: &'a [&'a str],
}

impl Default for Asked<'_> {
    fn default() -> Self {
        Self { name: "", user: "", groups: &[GROUP], names: &[], usages: &USAGES }
    }
}

impl Asked<'_> {
    /// Sends it; an error when the API server doesn't take it.
    fn send(&self, scene: &Scene, credential: &Path) -> anyhow::Result<()> {
        let request = certificate_request_with(self.user, self.groups, self.names)?;
        let object = json!({
            "apiVersion": "certificates.k8s.io/v1",
            "kind": "CertificateSigningRequest",
            "metadata": {"name": self.name},
            "spec": {"signerName": "kubernetes.io/kube-apiserver-client", "usages": self.usages, "request": request},
        });
        let path = scene.cluster.slot().dir().join(format!("{}.csr.json", self.name));
        fs::write(&path, object.to_string())?;
        scene.cluster.kubectl_as(credential, &["create", "-f", path.to_str().unwrap()]).map(drop)
    }

    /// Sends it and waits for the answer; its type and its words.
    fn answer(&self, scene: &Scene, credential: &Path) -> String {
        self.send(scene, credential).unwrap();
        wait_until(&format!("an answer to {}", self.name), SOON, || {
            let object = scene.get("csr", self.name);
            let condition = &object["status"]["conditions"][0];
            Ok(match condition["type"].as_str() {
                Some(kind) => Seen::Done(format!("{kind}: {}", condition["message"])),
                None => Seen::not_yet(object),
            })
        })
        .unwrap()
    }
}

#[test]
fn certificates_are_for_the_node_that_asks_and_for_nothing_else() {
    let scene = scene();
    for name in ["asks", "asks-other"] {
        scene.node_object_of(name, ROLE);
        scene.wait_for_object("the state", "nodestate", name, |state| state["spec"]["revision"].is_string());
    }
    let nodelet = scene.credential("nodelet:asks", &[GROUP]);
    let kubelet = scene.credential("system:node:asks", &["system:nodes"]);
    let token = scene.cluster.slot().dir().join("cluster-token.conf");
    fs::write(&token, scene.cluster.kubeconfig_with(&json!({"token": TOKEN}))).unwrap();
    let good = Asked { user: "nodelet:asks", ..Asked::default() };
    let other = Asked { user: "nodelet:asks-other", ..Asked::default() };
    let client = ["client auth"];
    let server = ["client auth", "digital signature", "server auth"];

    let denied: [(&Path, Asked<'_>, &str); 8] = [
        (&nodelet, Asked { name: "other-by-nodelet", ..other }, "nodelet:asks may not ask"),
        (&kubelet, Asked { name: "other-by-kubelet", ..other }, "system:node:asks may not ask"),
        (&token, Asked { name: "fewer-usages", usages: &client, ..good }, "usages must be exactly"),
        (&token, Asked { name: "more-usages", usages: &server, ..good }, "usages must be exactly"),
        (&token, Asked { name: "more-groups", groups: &[GROUP, "system:nodes"], ..good }, "subject must be"),
        (&token, Asked { name: "other-group", groups: &["system:nodes"], ..good }, "subject must be"),
        (&token, Asked { name: "names", names: &["asks.example.org"], ..good }, "no extensions"),
        (&kubelet, Asked { name: "kubelet-names", names: &["10.0.0.1"], ..good }, "no extensions"),
    ];
    for (credential, asked, words) in denied {
        let start = Instant::now();
        let answer = asked.answer(&scene, credential);
        assert!(answer.starts_with("Denied") && answer.contains(words), "{}: {answer}", asked.name);
        println!("{} was denied after {} ms", asked.name, start.elapsed().as_millis());
    }
    // What admission sees for itself does not become a request at all.
    for (asked, words) in [
        (Asked { name: "nodelet-usages", usages: &server, ..good }, "asks for a client certificate"),
        (Asked { name: "masters", groups: &[GROUP, "system:masters"], ..good }, "system:masters"),
    ] {
        let refused = format!("{:#}", asked.send(&scene, &nodelet).expect_err(asked.name));
        assert!(refused.contains(words), "{}: {refused}", asked.name);
    }
    // Nobody expects this one: it waits until somebody does.
    let stranger = Asked { name: "stranger", user: "nodelet:stranger", ..Asked::default() };
    stranger.send(&scene, &token).unwrap();
    for (name, credential) in [("by-token", &token), ("by-kubelet", &kubelet), ("renewal", &nodelet)] {
        let answer = Asked { name, ..good }.answer(&scene, credential);
        assert!(answer.starts_with("Approved"), "{name}: {answer}");
        scene.wait_for_object("the certificate", "csr", name, |object| object["status"]["certificate"].is_string());
    }
    assert_eq!(scene.get("csr", "stranger")["status"], json!({}), "no set selects it");
    scene.node_object_of("stranger", ROLE);
    scene.wait_for_object("the certificate of one who is expected now", "csr", "stranger", |object| {
        object["status"]["certificate"].is_string()
    });
}

/// Where a cluster issues no certificates of nodelet's own.
#[test]
fn a_node_follows_with_its_kubelets_credential_and_reaches_nothing_else() {
    let scene = scene();
    let node = scene.bare_node("by-kubelet");
    let kubeconfig = scene.cluster.kubeconfig_for("system:node:by-kubelet", &["system:nodes"]).unwrap();
    for name in ["by-kubelet", "not-by-kubelet"] {
        scene.node_object_of(name, ROLE);
    }
    crate::scene::join(&node, &kubeconfig, "identity = \"kubelet\"\n");
    scene.wait_until_applied_of(ROLE, &["by-kubelet"], LATER);
    let followed = Instant::now();
    let state = scene.state("by-kubelet");
    assert!(state["status"]["identity"].is_null(), "it has no certificate of its own: {state}");
    assert_eq!(node.read_file("/etc/from-cluster").unwrap(), "one by-kubelet");
    let requests = scene.cluster.kubectl(&["get", "csr", "-o", "name"]).unwrap();
    assert!(!requests.contains("nodelet-by-kubelet-"), "{requests}");

    let credential = scene.credential("system:node:by-kubelet", &["system:nodes"]);
    let status = r#"{"status": {"waitingFor": "nothing"}}"#;
    let spec = r#"{"spec": {"step": "Hold"}}"#;
    let system = "--namespace=nodelet-system";
    scene
        .cluster
        .kubectl(&["create", "secret", "generic", "nodelet-contents.not-by-kubelet", "--from-literal=a=b", system])
        .unwrap();
    let refused: [&[&str]; 10] = [
        &["get", "nodestate", "not-by-kubelet"],
        &["get", "nodestates"],
        &["patch", "nodestate", "by-kubelet", "--type=merge", "-p", spec],
        &["patch", "nodestate", "not-by-kubelet", "--subresource=status", "--type=merge", "-p", status],
        &["delete", "nodestate", "by-kubelet"],
        &["get", "secret", "nodelet-contents.not-by-kubelet", system],
        &["get", "secrets", system],
        &["get", "controllerrevisions", system],
        &["get", "nodeclass", ROLE],
        &["patch", "nodeset", &format!("{ROLE}s"), "--type=merge", "-p", r#"{"spec": {"paused": true}}"#],
    ];
    for words in refused {
        let error = format!("{:#}", scene.cluster.kubectl_as(&credential, words).expect_err(&format!("{words:?}")));
        assert!(error.contains("Forbidden"), "{words:?}: {error}");
    }
    let asked = Asked { name: "for-a-kubelet", user: "nodelet:stays-unknown", ..Asked::default() };
    asked.send(&scene, &scene.credential("somebody", &["system:masters"])).unwrap();
    let error = scene.cluster.kubectl_as(&credential, &["certificate", "approve", "for-a-kubelet"]).unwrap_err();
    assert!(format!("{error:#}").contains("Forbidden"), "{error:#}");

    // A sign of life is due within the first 30 s; whatever it does, the node is followed through it.
    wait_until("the first sign of life to be over", SOON, || {
        let late = followed.elapsed().as_secs() > 31;
        Ok(if late { Seen::Done(()) } else { Seen::not_yet(format!("{:?}", followed.elapsed())) })
    })
    .unwrap();
    let journal = node.journal("nodelet.service").unwrap();
    assert!(!journal.contains("the cluster is not followed"), "{journal}");
}

/// Somebody binds one role too many: what a nodelet may write does not become more.
#[test]
fn admission_holds_where_a_role_was_bound_too_many() {
    let scene = scene();
    for name in ["bound", "bound-other"] {
        scene.node_object_of(name, ROLE);
        scene.wait_for_object("the state", "nodestate", name, |state| state["spec"]["revision"].is_string());
    }
    let words = ["create", "clusterrolebinding", "too-many", "--clusterrole=cluster-admin", "--user=nodelet:bound"];
    scene.cluster.kubectl(&words).unwrap();
    let own = scene.credential("nodelet:bound", &[GROUP]);
    let tried = |words: &[&str]| scene.cluster.kubectl_as(&own, words);
    wait_until("the role to count", SOON, || {
        Ok(match tried(&["get", "nodes"]) {
            Ok(_) => Seen::Done(()),
            Err(error) => Seen::not_yet(format!("{error:#}")),
        })
    })
    .unwrap();
    let asked = Asked { name: "for-a-nodelet", user: "nodelet:never-expected", ..Asked::default() };
    asked.send(&scene, &scene.credential("somebody", &["system:masters"])).unwrap();
    let lease = |name: &str, namespace: &str| {
        let object = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": name, "namespace": namespace}, "spec": {"holderIdentity": "x"},
        });
        let path = scene.cluster.slot().dir().join(format!("{namespace}-{name}.json"));
        fs::write(&path, object.to_string()).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let label = r#"{"metadata": {"labels": {"role": "other"}}}"#;
    let status = r#"{"status": {"waitingFor": "nothing"}}"#;
    let system = "--namespace=nodelet-system";
    let (own_lease, others) = (lease("bound", "nodelet-system"), lease("bound-other", "nodelet-system"));
    let kubelets = lease("bound", "kube-node-lease");
    let refused: [&[&str]; 16] = [
        &["patch", "nodestate", "bound", "--type=merge", "-p", r#"{"spec": {"revision": "any"}}"#],
        &["patch", "nodestate", "bound-other", "--subresource=status", "--type=merge", "-p", status],
        &["delete", "nodestate", "bound"],
        &["delete", "nodestates", "--all"],
        &["patch", "node", "bound", "--type=merge", "-p", label],
        &["patch", "node", "bound", "--subresource=status", "--type=merge", "-p", r#"{"status": {"phase": "x"}}"#],
        &["patch", "nodeclass", ROLE, "--type=merge", "-p", label],
        &["delete", "nodeset", &format!("{ROLE}s")],
        &["create", "secret", "generic", "bound", "--from-literal=a=b", system],
        &["create", "configmap", "bound", system],
        &["create", "clusterrolebinding", "bound", "--clusterrole=cluster-admin", "--user=nodelet:bound"],
        &["create", "namespace", "bound"],
        &["apply", "--server-side", "-f", &others],
        &["apply", "--server-side", "-f", &kubelets],
        &["certificate", "approve", "for-a-nodelet"],
        &["create", "token", "node-controller", system],
    ];
    for words in refused {
        let error = format!("{:#}", tried(words).expect_err(&format!("{words:?}")));
        assert!(error.contains("ValidatingAdmissionPolicy 'nodelet-nodes'"), "{words:?}: {error}");
    }
    let allowed: [&[&str]; 2] = [
        &["patch", "nodestate", "bound", "--subresource=status", "--type=merge", "-p", status],
        &["apply", "--server-side", "-f", &own_lease],
    ];
    for words in allowed {
        tried(words).unwrap_or_else(|error| panic!("{words:?}: {error:#}"));
    }
    scene.cluster.kubectl(&["delete", "clusterrolebinding", "too-many"]).unwrap();
}
