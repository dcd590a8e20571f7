//! Gates of sets at a real API server, with real controllers and a real Prometheus. The one node is simulated: what is
//! looked at here is what keeps its turn from beginning.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testbed::cluster::{Cluster, Component};
use testbed::slot::Slot;
use testbed::wait::Seen;

use crate::rollout_sets::{Names, class, node, nodelets, wait_for};
use crate::scene::condition;

const LIMIT: Duration = Duration::from_secs(60);

/// A part of the test; the gates that pass in the end.
type Part = fn(&Scene) -> Vec<Value>;

/// A set whose change waits at its gates.
struct Scene {
    cluster: Cluster,
    controller: Component,
    /// A gate that never answers, so that the change stays where it is.
    holds: Value,
}

impl Scene {
    fn set(&self) -> Value {
        let text = self.cluster.kubectl(&["get", "nodeset", "gated", "-o", "json"]).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    fn gates(&self, gates: &Value) {
        let patch = json!({"spec": {"health": {"gates": gates}}}).to_string();
        self.cluster.kubectl(&["patch", "nodeset", "gated", "--type=merge", "-p", &patch]).unwrap();
    }

    /// What the set says once it says these words.
    fn wait_until_said(&self, words: &str) -> String {
        testbed::wait_until(&format!("the set to say {words:?}"), LIMIT, || {
            let set = self.set();
            let said = condition(&set, "Progressing")["message"].as_str().unwrap_or_default().to_owned();
            Ok(if said.contains(words) { Seen::Done(said) } else { Seen::not_yet(condition(&set, "Progressing")) })
        })
        .unwrap()
    }

    /// A gate, and what it says.
    fn fails(&self, gate: &Value, words: &str) {
        self.gates(&json!([named("asked", gate), self.holds]));
        println!("{}", self.wait_until_said(words));
    }

    /// A gate that is passed: the next one is what is waited for.
    fn passes(&self, gate: &Value) {
        self.gates(&json!([named("asked", gate), self.holds]));
        self.wait_until_said("the gate holds: ");
    }
}

fn named(name: &str, gate: &Value) -> Value {
    let mut gate = gate.clone();
    gate["name"] = json!(name);
    gate
}

async fn scene(silent: &TcpListener) -> Scene {
    let cluster = Cluster::start(&Slot::take().unwrap()).unwrap();
    cluster.install_operator().unwrap();
    let controller = cluster.controller("one").unwrap();
    controller.start().unwrap();
    class(&cluster, "gated", "one");
    node(&cluster, "gated", "gated-0");
    let object = json!({
        "apiVersion": "nodelet.dev/v1alpha1", "kind": "NodeSet", "metadata": {"name": "gated"},
        "spec": {"classRef": {"name": "gated"}, "selector": {"matchLabels": {"set": "gated"}}},
    });
    cluster.apply(&object.to_string()).unwrap();
    tokio::spawn(nodelets(cluster.client().await.unwrap(), Names::default()));
    wait_for(&cluster, "gated", "the node to be taken over", |status| status["updatedReplicas"] == 1);
    let url = format!("http://{}/", silent.local_addr().unwrap());
    let scene = Scene { cluster, controller, holds: json!({"name": "holds", "http": {"url": url}}) };
    scene.gates(&json!([scene.holds]));
    class(&scene.cluster, "gated", "two");
    scene
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gates_hold_a_change_and_say_why() {
    // Nobody accepts: the connection is made, and that is all.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let scene = scene(&silent).await;
    let parts: [(&str, Part); 4] = [
        ("objects", objects),
        ("expressions without end", expressions_without_end),
        ("Prometheus", prometheus),
        ("TLS and a token", tls_and_a_token),
    ];
    let mut passed = Vec::new();
    for (name, part) in parts {
        let start = Instant::now();
        passed.extend(part(&scene));
        println!("{name}: {:.1} s", start.elapsed().as_secs_f32());
    }
    scene.wait_until_said("the gate holds: no answer in 5 s");
    // All that passed, together; and units that this node's nodelet can't report, because it says that it is an old one.
    passed.push(json!({"units": ["kubelet.service"]}));
    let gates: Vec<Value> = passed.iter().enumerate().map(|(n, gate)| named(&format!("g{n}"), gate)).collect();
    scene.gates(&json!(gates));
    wait_for(&scene.cluster, "gated", "the change to go through", |status| {
        status["updatedReplicas"] == 1
            && status["currentRevision"] == status["updateRevision"]
            && status["slots"].as_array().is_none_or(Vec::is_empty)
    });
}

/// A real Deployment with its real controller, and a kind whose plural nobody guesses.
fn objects(scene: &Scene) -> Vec<Value> {
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "main", "image": "registry.local/none:1"}]},
            },
        },
    });
    scene.cluster.apply(&deployment.to_string()).unwrap();
    let of = |more: Value| {
        let mut object = json!({"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "default", "name": "web"});
        object.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"object": object})
    };
    let cel = |expression: &str| of(json!({"cel": expression}));
    scene.fails(
        &cel("object.status.unavailableReplicas == 0"),
        "the gate asked: Deployment default/web: object.status.unavailableReplicas == 0 is false \
         (object.status.unavailableReplicas is 2)",
    );
    scene.fails(
        &cel("object.status.readyReplicas == object.spec.replicas"),
        "names `readyReplicas`, which is not there",
    );
    scene.fails(&cel("object.status ="), "is no valid CEL");
    scene.fails(&cel("object.spec.replicas"), "must be true or false, and is of the type int");
    scene.fails(&of(json!({"condition": "Available"})), "Deployment default/web: it is not Available: ");
    scene.fails(&of(json!({"condition": "Available", "name": "wep"})), "Deployment default/wep does not exist");
    scene.fails(
        &of(json!({"condition": "Available", "kind": "Deploymend"})),
        "the cluster has no kind Deploymend in apps/v1",
    );
    let all = cel("object.status.replicas == object.spec.replicas");
    scene.passes(&all);

    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "cacti.example.org"},
        "spec": {
            "group": "example.org", "scope": "Namespaced", "names": {"kind": "Cactus", "plural": "cacti"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            }}}],
        },
    });
    scene.cluster.apply(&definition.to_string()).unwrap();
    scene.cluster.kubectl(&["wait", "--for=condition=Established", "--timeout=30s", "crd/cacti.example.org"]).unwrap();
    let cactus = json!({
        "apiVersion": "example.org/v1", "kind": "Cactus", "metadata": {"name": "tall", "namespace": "default"}, "spikes": 7,
    });
    scene.cluster.apply(&cactus.to_string()).unwrap();
    let spikes = json!({"object": {
        "apiVersion": "example.org/v1", "kind": "Cactus", "namespace": "default", "name": "tall", "cel": "object.spikes > 5",
    }});
    scene.fails(&spikes, "bind a Role to node-controller that lets it get cacti.example.org in default");
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "gates-cacti", "labels": {"nodelet.dev/aggregate-to-gates": "true"}},
        "rules": [{"apiGroups": ["example.org"], "resources": ["cacti"], "verbs": ["get"]}],
    });
    scene.cluster.apply(&role.to_string()).unwrap();
    scene.passes(&spikes);
    vec![all, spikes]
}

/// What takes too long, or too much memory, is ended; the controller goes on.
fn expressions_without_end(scene: &Scene) -> Vec<Value> {
    let of = |expression: &str| {
        json!({"object": {
            "apiVersion": "v1", "kind": "Service", "namespace": "default", "name": "kubernetes", "cel": expression,
        }})
    };
    let ten = "[0,1,2,3,4,5,6,7,8,9]";
    let long = (0..10).fold("true".to_owned(), |inner, _| format!("{ten}.all(x, {inner})"));
    scene.fails(&of(&long), "make it simpler");
    let large = (0..36).fold("'xxxxxxxx'".to_owned(), |inner, _| format!("[{inner}].map(x, x+x)[0]"));
    scene.fails(&of(&format!("{large} == ''")), "make it simpler");
    let plain = of("object.spec.type == 'ClusterIP'");
    scene.passes(&plain);
    vec![plain]
}

fn prometheus(scene: &Scene) -> Vec<Value> {
    // It is taken down with the slot.
    let (_server, url) = scene.cluster.prometheus().unwrap();
    let ask = |query: &str, cel: &str| json!({"prometheus": {"url": url, "query": query, "cel": cel}});
    scene.fails(&ask("vector(3)", "value == 0"), "the gate asked: value == 0 is false (value is 3)");
    scene.fails(&ask("sum(", "value == 0"), "Prometheus says bad_data: ");
    scene.fails(&ask("up[1m]", "value == 0"), "the query gives a matrix");
    // What it saw of itself.
    scene.passes(&ask("up", "value == 1 && result[0].metric.job == 'self'"));
    let quiet = ask("count(up == 0)", "value == 0 && size(result) == 0");
    scene.passes(&quiet);
    vec![quiet]
}

/// The API server's own health, which wants TLS and a token.
fn tls_and_a_token(scene: &Scene) -> Vec<Value> {
    let url = format!("{}/healthz", scene.cluster.url());
    scene.fails(&json!({"http": {"url": url}}), "invalid peer certificate");
    let mut gate = json!({"http": {"url": url, "caBundle": scene.cluster.authority_certificate()}});
    scene.fails(&gate, "/healthz answers with 401, not 200");
    scene.cluster.kubectl(&["create", "serviceaccount", "prober", "--namespace=default"]).unwrap();
    let token = scene.cluster.kubectl(&["create", "token", "prober", "--namespace=default"]).unwrap();
    let token = token.trim();
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "prober", "namespace": "nodelet-system"},
        "stringData": {"token": token},
    });
    scene.cluster.apply(&secret.to_string()).unwrap();
    gate["http"]["tokenSecretRef"] = json!({"name": "prober", "key": "token"});
    scene.fails(&gate, "the Secret prober is not meant for gates");
    let label = ["label", "secret", "prober", "nodelet.dev/gate-token=true", "--namespace=nodelet-system"];
    scene.cluster.kubectl(&label).unwrap();
    let place = format!("nodelet.dev/gate-url={}", scene.cluster.url());
    scene.fails(&gate, "the Secret prober is not meant for https://");
    let elsewhere = "nodelet.dev/gate-url=https://shop.example.org";
    for (place, words) in [(elsewhere, "give it the annotation nodelet.dev/gate-url: "), (&place, "")] {
        let annotate = ["annotate", "--overwrite", "secret", "prober", place, "--namespace=nodelet-system"];
        scene.cluster.kubectl(&annotate).unwrap();
        if !words.is_empty() {
            scene.fails(&gate, words);
        }
    }
    scene.passes(&gate);
    let objects = scene.cluster.kubectl(&["get", "nodesets,nodestates,events", "-A", "-o", "json"]).unwrap();
    let log = std::fs::read_to_string(scene.controller.log()).unwrap();
    assert!(!objects.contains(token) && !log.contains(token), "the token is to be read");
    vec![gate]
}
