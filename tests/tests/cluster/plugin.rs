//! `kubectl nodes` at a real API server with a real node-controller. The nodes are objects alone: what their nodelets
//! would report is written by the test.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use testbed::command::{self, Output};
use testbed::wait::Seen;
use testbed::wait_until;

use crate::scene::Scene;

const SOON: Duration = Duration::from_secs(30);
const NODES: [&str; 3] = ["plug-1", "plug-2", "plug-3"];

/// The cluster and the plugin.
struct Plugin {
    scene: Scene,
    program: PathBuf,
}

impl Plugin {
    fn start() -> Self {
        Self { scene: Scene::new(), program: testbed::paths::program("kubectl-nodes").unwrap() }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.env("KUBECONFIG", self.scene.cluster.kubeconfig()).env_remove("NO_COLOR");
        command
    }

    fn output(&self, words: &[&str]) -> Output {
        command::output(self.command().args(words), None, SOON).unwrap()
    }

    /// What it prints, when it must succeed.
    fn run(&self, words: &[&str]) -> String {
        let done = self.output(words);
        assert!(done.success(), "{words:?}: {}", done.text());
        println!("$ kubectl nodes {}\n{}", words.join(" "), done.stdout);
        done.stdout
    }

    /// What it says, when it must fail with 1.
    fn refused(&self, words: &[&str]) -> String {
        let done = self.output(words);
        assert_eq!(done.code(), 1, "{words:?}: {}", done.text());
        println!("$ kubectl nodes {}\n{}", words.join(" "), done.text());
        done.text()
    }

    fn json(&self, words: &[&str]) -> Value {
        serde_json::from_str(&self.run(&[words, &["--output", "json"]].concat())).unwrap()
    }

    /// Runs it until its text has all these words.
    fn wait_for(&self, words: &[&str], wanted: &[&str]) -> String {
        wait_until(&format!("{wanted:?} in {words:?}"), SOON, || {
            let text = self.output(words).text();
            Ok(if wanted.iter().all(|one| text.contains(one)) { Seen::Done(text) } else { Seen::NotYet(text) })
        })
        .map(|text| {
            println!("$ kubectl nodes {}\n{text}", words.join(" "));
            text
        })
        .unwrap()
    }

    /// What a node's nodelet reports.
    fn report(&self, node: &str, status: &Value) {
        let patch = json!({"status": status}).to_string();
        let words = ["patch", "nodestate", node, "--subresource=status", "--type=merge", "-p", &patch];
        self.scene.cluster.kubectl(&words).unwrap();
    }

    /// The revision that a node must become, once it is another than that.
    fn revision_after(&self, node: &str, old: &str) -> String {
        wait_until(&format!("{node} to be told of a revision"), SOON, || {
            let found = self.scene.cluster.kubectl(&["get", "nodestate", node, "-o", "jsonpath={.spec.revision}"]);
            Ok(match found {
                Ok(name) if !name.is_empty() && name != old => Seen::Done(name),
                other => Seen::not_yet(format!("{other:?}")),
            })
        })
        .unwrap()
    }

    fn change_set(&self, spec: &Value) {
        let patch = json!({"spec": spec}).to_string();
        self.scene.cluster.kubectl(&["patch", "nodeset", "workers", "--type=merge", "-p", &patch]).unwrap();
    }
}

fn condition(kind: &str, status: &str, reason: &str, message: &str, generation: &Value) -> Value {
    json!({"type": kind, "status": status, "reason": reason, "message": message, "observedGeneration": generation,
           "lastTransitionTime": "2026-01-01T00:00:00Z"})
}

/// A node that has a revision, and is well.
fn well(revision: &str) -> Value {
    let converged = condition("Converged", "True", "Converged", "", &json!(1));
    let now = nodelet_api::objects::time_text(jiff::Timestamp::now());
    json!({"applied": {"revision": revision, "at": now}, "waitingFor": "", "conditions": [converged]})
}

fn staged(revision: &str, disruption: &str) -> Value {
    let plan = ["upgrade containerd 1.7.1 to 1.7.2", "restart containerd.service"];
    json!({"staged": {"revision": revision, "disruption": disruption, "plan": plan}})
}

/// Three nodes that are Ready, and a pod on the first that nobody would make again.
fn prepare(plugin: &Plugin) {
    let cluster = &plugin.scene.cluster;
    plugin.scene.node_objects(&NODES);
    let ready =
        json!({"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "Test", "message": ""}]}});
    for node in NODES {
        let words = ["patch", "node", node, "--subresource=status", "--type=merge", "-p", &ready.to_string()];
        cluster.kubectl(&words).unwrap();
    }
    wait_until("the default service account", SOON, || {
        Ok(match cluster.kubectl(&["get", "serviceaccount", "default"]) {
            Ok(_) => Seen::Done(()),
            Err(error) => Seen::not_yet(error),
        })
    })
    .unwrap();
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "stay", "labels": {"app": "stay"}},
        "spec": {"nodeName": "plug-1", "containers": [{"name": "main", "image": "none"}]}});
    let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "stay"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "stay"}}}});
    cluster.apply(&format!("{pod}\n---\n{budget}\n")).unwrap();
}

/// One story, because each command looks at what those before it did.
#[test]
fn the_plugin_shows_and_steers_a_rollout() {
    let plugin = Plugin::start();
    prepare(&plugin);
    plugin.scene.class("one");
    plugin.scene.set();
    let first = plugin.revision_after("plug-3", "");
    let late = plugin.refused(&["wait", "workers", "--timeout", "1s"]);
    assert!(late.contains("1s were over before all nodes of workers were updated"), "{late}");
    assert!(plugin.run(&["why", "plug-1"]).contains("its nodelet has not reported yet."));
    for node in NODES {
        plugin.revision_after(node, "");
        plugin.report(node, &well(&first));
    }
    let waited = plugin.run(&["wait", "workers", "--timeout", "30s"]);
    assert!(waited.ends_with(&format!("all 3 nodes have {first}")), "{waited}");

    at_rest(&plugin, &first);
    let second = plan_and_turn(&plugin, &first);
    undo_and_failure(&plugin, &first, &second);
    strangers(&plugin);
    a_viewer(&plugin);
}

/// All nodes are done.
fn at_rest(plugin: &Plugin, first: &str) {
    let status = plugin.run(&["status"]);
    assert!(status.contains(&format!("workers   class worker   {first}   3 of 3 updated   Updated")), "{status}");
    assert!(plugin.run(&["plan", "workers"]).contains("nothing would change"));
    let why = plugin.run(&["why", "node/plug-1"]);
    assert!(why.contains("plug-1 is in the NodeSet workers, of the class worker."), "{why}");
    assert!(why.contains("and that is what its set wants."), "{why}");
    let history = plugin.run(&["history", "workers"]);
    assert!(history.contains(first) && history.contains("class, target, current"), "{history}");
    let refused = plugin.refused(&["undo", "workers"]);
    assert!(refused.contains("there is nothing to go back to"), "{refused}");
    let rendered = plugin.run(&["render", "worker"]);
    assert!(rendered.contains(first) && rendered.contains("path: /etc/from-cluster"), "{rendered}");
    assert_eq!(plugin.json(&["render", "worker"])["files"][0]["path"], "/etc/from-cluster");
    assert!(plugin.run(&["history", "workers", "-o", "yaml"]).contains(&format!("revision: {first}")));

    // As kubectl finds it, with its own kubeconfig flag behind the plugin's name.
    let kubeconfig = plugin.scene.cluster.kubeconfig();
    let mut kubectl = Command::new(plugin.scene.cluster.binaries().program("kubectl"));
    kubectl.env("PATH", plugin.program.parent().unwrap()).args(["nodes", "status", "workers", "--kubeconfig"]);
    let done = command::output(kubectl.arg(kubeconfig), None, SOON).unwrap();
    assert!(done.success() && done.stdout.lines().next() == status.lines().next(), "{}", done.text());

    completed_by_kubectl(plugin);

    // On a terminal there is a bar, and colours unless they are not wanted.
    let program = plugin.program.display().to_string();
    let on_terminal = |setting: &str, options: &str| {
        let mut script = Command::new("script");
        script.env("KUBECONFIG", plugin.scene.cluster.kubeconfig()).env_remove("NO_COLOR");
        script.args(["-qec", &format!("{setting}{program} status{options}"), "/dev/null"]);
        command::output(&mut script, None, SOON).unwrap().stdout
    };
    let coloured = on_terminal("", "");
    assert!(coloured.contains("████████████████████") && coloured.contains("\x1b[32mdone"), "{coloured}");
    assert!(!on_terminal("NO_COLOR=1 ", "").contains('\x1b'));
    let live = on_terminal("timeout 2 ", " --watch");
    assert!(live.starts_with("\x1b[2J\x1b[H") && live.matches("\x1b[H").count() > 1, "{live:?}");
    assert!(plugin.run(&["completion", "bash"]).contains("kubectl__nodes"));
}

/// kubectl's own completion, with the files where the package puts them: commands, and names from the cluster.
fn completed_by_kubectl(plugin: &Plugin) {
    let tree = plugin.scene.cluster.slot().dir().join("plugin");
    let (programs, scripts) = (tree.join("usr/bin"), tree.join("usr/share/bash-completion/completions"));
    let checkout = testbed::paths::checkout();
    for (from, directory, name) in [
        (plugin.program.clone(), &programs, "kubectl-nodes"),
        (plugin.scene.cluster.binaries().program("kubectl"), &programs, "kubectl"),
        (checkout.join("docs/completions/kubectl-nodes.bash"), &scripts, "kubectl-nodes"),
    ] {
        std::fs::create_dir_all(directory).unwrap();
        std::os::unix::fs::symlink(from, directory.join(name)).unwrap();
    }
    // Not a link: what belongs to it is found beside it.
    let hook = programs.join("kubectl_complete-nodes");
    std::fs::copy(checkout.join("packaging/kubectl_complete-nodes"), &hook).unwrap();
    for (words, expected) in [(&["nodes", "hist"] as &[&str], "history\n"), (&["nodes", "undo", ""], "workers\n")] {
        let mut kubectl = Command::new(programs.join("kubectl"));
        kubectl.env("PATH", format!("{}:/usr/bin:/bin", programs.display())).arg("__complete").args(words);
        kubectl.env("KUBECONFIG", plugin.scene.cluster.kubeconfig());
        let done = command::output(&mut kubectl, None, SOON).unwrap();
        assert!(done.stdout.contains(expected), "{words:?}: {}", done.text());
    }
}

/// A change, from its plan to the first turn. Returns its revision.
fn plan_and_turn(plugin: &Plugin, first: &str) -> String {
    let log = plugin.scene.cluster.slot().dir().join("watch.log");
    let mut watch = plugin.command();
    watch.args(["status", "--watch"]).stdin(Stdio::null()).stdout(File::create(&log).unwrap());
    let mut watch = watch.spawn().unwrap();

    assert!(plugin.run(&["pause", "workers"]).contains("nodeset.nodelet.dev/workers paused"));
    plugin.scene.class("two");
    plugin.wait_for(&["status", "workers"], &["Paused", "the set is paused"]);
    let why = plugin.run(&["why", "plug-2"]);
    assert!(why.contains("The set begins nothing: the set is paused.") && why.contains("resume workers"), "{why}");

    // A window on a day that is not near: nodes make themselves ready, and nothing begins.
    let day = command::run(Command::new("date").env("LC_ALL", "C").args(["-u", "-d", "+3 days", "+%a"])).unwrap();
    plugin.change_set(
        &json!({"windows": [{"days": [day.trim()], "start": "12:00", "durationMinutes": 1, "timeZone": "UTC"}]}),
    );
    assert!(plugin.run(&["resume", "workers"]).contains("nodeset.nodelet.dev/workers resumed"));
    assert!(plugin.run(&["pause", "--node", "plug-3"]).contains("node/plug-3 paused"));
    let second = plugin.revision_after("plug-1", first);
    for node in ["plug-1", "plug-2"] {
        plugin.revision_after(node, first);
        plugin.report(node, &staged(&second, "Drain"));
    }
    let plan = plugin.wait_for(&["plan", "workers"], &["Nothing begins now: the next window opens at", "  3. plug-3"]);
    let has = |words: &str| assert!(plan.contains(words), "no {words:?} in:\n{plan}");
    has(&format!("workers goes to {second}: 3 of 3 nodes change, 1 at a time."));
    has(&format!("  1. plug-1   {first} → {second}, disruption Drain   staged"));
    has("       upgrade containerd 1.7.1 to 1.7.2");
    has("PodDisruptionBudget default/stay allows 0 disruptions now");
    has("would wait now for pod default/stay, which no controller would make again");
    assert_eq!(plugin.json(&["plan", "workers"])["nodes"][0]["budgets"]["default/stay"], 0);
    let why = plugin.run(&["why", "plug-2"]);
    assert!(why.contains("One node comes before it.") && why.contains("change `windows` of the set"), "{why}");
    assert!(plugin.run(&["why", "plug-3"]).contains("kubectl nodes resume --node plug-3"));

    plugin.change_set(&json!({"windows": null}));
    plugin.wait_for(
        &["status"],
        &["plug-1   draining", "plug-2   staged", "plug-3   paused", "Drain        pod default/stay"],
    );
    let why = plugin.wait_for(&["why", "plug-1"], &["waits for: pod default/stay"]);
    assert!(why.contains(": it is draining, and waits for: "), "{why}");
    assert!(plugin.run(&["why", "plug-2"]).contains("Now it is the turn of plug-1 (draining)."));
    wait_until("the watch to have told of it", SOON, || {
        let told = std::fs::read_to_string(&log)?;
        let told_of = |words: &str| told.contains(words);
        let all =
            told_of("3 of 3 updated, Updated") && told_of("workers/plug-1: draining") && told_of("/plug-3: paused");
        Ok(if all { Seen::Done(()) } else { Seen::NotYet(told) })
    })
    .unwrap();
    println!("$ kubectl nodes status --watch\n{}", std::fs::read_to_string(&log).unwrap());
    watch.kill().unwrap();
    watch.wait().unwrap();
    second
}

/// Back by hand, and back because a node failed.
fn undo_and_failure(plugin: &Plugin, first: &str, second: &str) {
    assert!(plugin.run(&["resume", "--node", "plug-3"]).contains("node/plug-3 resumed"));
    let undone = plugin.run(&["undo", "workers"]);
    assert!(undone.contains(&format!("goes back to {first}: 0 of 3 nodes change")), "{undone}");
    let waited = plugin.run(&["wait", "workers", "--timeout", "30s"]);
    assert!(waited.ends_with(&format!("all 3 nodes have {first}")), "{waited}");
    let why = plugin.run(&["why", "plug-1"]);
    assert!(why.contains(&format!("The class asks for {second}, but somebody went back from it")), "{why}");
    assert!(plugin.refused(&["undo", "workers", "--to", "x"]).contains("no stored revision `x`"));

    plugin.scene.class("three");
    let third = plugin.revision_after("plug-1", first);
    plugin.report("plug-1", &staged(&third, "Restart"));
    plugin.wait_for(&["status"], &["plug-1   applying"]);
    let granted = wait_until("the grant", SOON, || {
        let state = plugin.scene.state("plug-1");
        let id = state["spec"]["grant"]["disruption"].as_str().unwrap_or_default();
        Ok(if id == "Restart" { Seen::Done(state.clone()) } else { Seen::not_yet(&state) })
    })
    .unwrap();
    let generation = &granted["metadata"]["generation"];
    let failed = condition("Degraded", "True", "StepFailed", "containerd does not start", generation);
    let converged = condition("Converged", "True", "Converged", "", generation);
    let steps = json!([{"what": "upgrade containerd", "result": "undone", "at": "2026-01-01T00:00:00Z"}]);
    plugin.report("plug-1", &json!({"conditions": [converged, failed], "steps": steps}));
    let waited = plugin.refused(&["wait", "workers", "--timeout", "30s"]);
    assert!(waited.contains(&format!("revision {third} failed: node plug-1: StepFailed")), "{waited}");
    let history = plugin.run(&["history", "workers"]);
    assert!(history.contains("bad") && history.contains("containerd does not start"), "{history}");
    let why = plugin.wait_for(&["why", "plug-2"], &["which failed (node plug-1: StepFailed"]);
    assert!(why.contains("kubectl edit nodeclass worker"), "{why}");
    plugin.run(&["status", "workers"]);
}

/// Nodes that nobody has, requests that nobody answered, names that are wrong.
fn strangers(plugin: &Plugin) {
    let cluster = &plugin.scene.cluster;
    let request = testbed::cluster::certificate_request("nodelet:plug-2", &["nodelet:nodes"]).unwrap();
    let request = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"name": "by-hand"},
        "spec": {"signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth", "digital signature"],
                 "request": request}});
    let other = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "other"}});
    cluster.apply(&format!("{request}\n---\n{other}\n")).unwrap();
    let why = plugin.run(&["why", "plug-2"]);
    assert!(why.contains("Its request by-hand for a certificate is not answered yet."), "{why}");
    cluster.kubectl(&["certificate", "deny", "by-hand"]).unwrap();
    let why = plugin.run(&["why", "plug-2"]);
    assert!(why.contains("Its request by-hand for a certificate was denied"), "{why}");
    let why = plugin.run(&["why", "other"]);
    assert!(
        why.contains("other belongs to no NodeSet")
            && why.contains("workers selects node-restriction.kubernetes.io/role=worker"),
        "{why}"
    );

    assert!(plugin.refused(&["why", "plug-9"]).contains("there is no Node `plug-9`; do you mean `plug-"));
    assert!(plugin.refused(&["status", "worker"]).contains("do you mean `workers`?"));
    assert!(plugin.refused(&["pause", "x"]).contains("`kubectl get nodesets` lists those that do"));
    assert!(plugin.refused(&["pause", "--node", "x"]).contains("`kubectl get nodes` lists those that do"));
    assert!(plugin.refused(&["status", "--context", "x"]).contains("kubectl config get-contexts"));
    assert_eq!(plugin.output(&["pause"]).code(), 2, "a set or a node must be named");
}

/// Who may only look sees how far sets are, though not the Nodes, and is told why not more.
fn a_viewer(plugin: &Plugin) {
    let words = ["create", "clusterrolebinding", "viewer", "--clusterrole=view", "--user=viewer"];
    plugin.scene.cluster.kubectl(&words).unwrap();
    let kubeconfig = plugin.scene.credential("viewer", &[]).display().to_string();
    plugin.wait_for(&["status", "--kubeconfig", &kubeconfig], &["3 of 3 updated", "plug-3   done"]);
    let refused = plugin.refused(&["pause", "workers", "--kubeconfig", &kubeconfig]);
    assert!(refused.contains("you have no right to do that"), "{refused}");
}
