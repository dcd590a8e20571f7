//! The add-on as a user installs it: its image, its manifests, real kubelets; and what is left when it is gone.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testbed::cluster::{BUSYBOX, Cluster, JoinOptions};
use testbed::slot::Slot;
use testbed::wait::{Seen, wait_until};
use testbed::{Node, paths};

const SOON: Duration = Duration::from_secs(120);
const NAMES: [&str; 2] = ["install-1", "install-2"];
const SYSTEM: &str = "--namespace=nodelet-system";

/// A control plane with two nodes that have node-controller's image, and a workload that has nothing to do with it.
struct Scene {
    cluster: Cluster,
    nodes: Vec<Node>,
}

impl Scene {
    async fn new() -> Self {
        let cluster = Cluster::start(&Slot::take().unwrap()).unwrap();
        let program = paths::program("node-controller").unwrap();
        let image = packaging::image::controller(&program, env!("CARGO_PKG_VERSION")).unwrap().archive().unwrap();
        println!("the image of the debug program has {} MB", image.len() / 1_000_000);
        let labels = vec![("role".to_owned(), "worker".to_owned())];
        let options = JoinOptions { labels, ..JoinOptions::default() };
        let nodes: Vec<Node> = std::thread::scope(|scope| {
            let start = |name| {
                let (cluster, options, image) = (&cluster, &options, &image);
                scope.spawn(move || {
                    let node = cluster.start_kubelet(name, options).unwrap();
                    cluster.show_api_to_pods(&node).unwrap();
                    let import = ["ctr", "-n", "k8s.io", "images", "import", "-"];
                    let done = node.exec_with(&import, Some(image), SOON).unwrap();
                    assert!(done.success(), "{}", done.text());
                    node
                })
            };
            NAMES.map(start).into_iter().map(|started| started.join().unwrap()).collect()
        });
        for name in NAMES {
            cluster.wait_until_node_ready(name).await.unwrap();
        }
        let scene = Self { cluster, nodes };
        scene.start_bystander();
        scene
    }

    fn start_bystander(&self) {
        let pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "bystander"},
            "spec": {
                "nodeName": NAMES[0],
                "automountServiceAccountToken": false,
                "terminationGracePeriodSeconds": 1,
                "containers": [{"name": "main", "image": BUSYBOX, "imagePullPolicy": "Never"}],
            },
        });
        // Refused until the controller manager has made the namespace's service account.
        self.wait("the bystander to be taken", || {
            self.cluster.apply(&pod.to_string()).map_err(|error| error.to_string())
        });
        self.cluster.kubectl(&["wait", "pod/bystander", "--for=condition=Ready", "--timeout=120s"]).unwrap();
    }

    /// Looks until it is so, and returns what was found.
    fn wait<T>(&self, what: &str, look: impl Fn() -> Result<T, String>) -> T {
        wait_until(what, SOON, || {
            Ok(match look() {
                Ok(found) => Seen::Done(found),
                Err(instead) => Seen::not_yet(instead),
            })
        })
        .unwrap_or_else(|error| panic!("{error:#}\n{}", self.account()))
    }

    /// What a person would look at when the add-on doesn't come up.
    fn account(&self) -> String {
        let questions: [&[&str]; 4] = [
            &["get", "pods,nodes", "-A", "-o", "wide"],
            &["describe", "pods", SYSTEM],
            &["logs", "deployment/node-controller", "--all-pods", "--prefix", SYSTEM],
            &["get", "events", "-A"],
        ];
        let answers = questions.map(|words| self.cluster.kubectl(words).unwrap_or_else(|error| format!("{error:#}")));
        answers.join("\n\n")
    }

    fn get(&self, words: &[&str]) -> Result<Value, String> {
        let text =
            self.cluster.kubectl(&[&["get", "-o", "json"], words].concat()).map_err(|error| error.to_string())?;
        serde_json::from_str(&text).map_err(|error| format!("{error}: {text}"))
    }

    /// Installs as the documentation says, and waits until both replicas are there.
    fn install(&self, how: &[&str]) -> Duration {
        let start = Instant::now();
        let config = manifests();
        self.cluster.kubectl(&[&["apply", "-k", &config], how].concat()).unwrap();
        self.wait("two replicas to be available", || {
            let deployment = self.get(&["deployment", "node-controller", SYSTEM])?;
            let status = &deployment["status"];
            if status["availableReplicas"] == 2 && status["updatedReplicas"] == 2 {
                return Ok(());
            }
            Err(status.to_string())
        });
        start.elapsed()
    }

    /// The controllers' pods that are not on their way out: name and node.
    fn controllers(&self) -> Vec<(String, String)> {
        let pods = self.get(&["pods", SYSTEM, "-l", "app.kubernetes.io/name=node-controller"]).unwrap();
        let alive =
            pods["items"].as_array().unwrap().iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        alive.map(|pod| (text(&pod["metadata"]["name"]), text(&pod["spec"]["nodeName"]))).collect()
    }

    /// Who holds the lease, once it is one of those that are alive.
    fn leader(&self) -> String {
        self.wait("one of the controllers to lead", || {
            let lease = self.get(&["lease", "node-controller", SYSTEM])?;
            let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned();
            if self.controllers().iter().any(|(name, _)| *name == holder) { Ok(holder) } else { Err(lease.to_string()) }
        })
    }

    fn class(&self, content: &str) {
        let class = json!({
            "apiVersion": "nodelet.dev/v1alpha1",
            "kind": "NodeClass",
            "metadata": {"name": "worker"},
            "spec": {"state": {"files": [{"path": "/etc/from-cluster", "content": content}]}},
        });
        let set = json!({
            "apiVersion": "nodelet.dev/v1alpha1",
            "kind": "NodeSet",
            "metadata": {"name": "workers"},
            "spec": {"classRef": {"name": "worker"}, "selector": {"matchLabels": {"role": "worker"}}},
        });
        self.cluster.apply(&class.to_string()).unwrap();
        self.cluster.apply(&set.to_string()).unwrap();
    }

    /// The one revision that all nodes are handed, when it is another than `before`.
    fn revision(&self, before: &str) -> String {
        self.wait("every node to be handed the class's revision", || {
            let states = self.get(&["nodestates"])?;
            let states = states["items"].as_array().unwrap();
            let revisions: BTreeSet<&str> =
                states.iter().filter_map(|state| state["spec"]["revision"].as_str()).collect();
            match revisions.first() {
                Some(one) if states.len() == 2 && revisions.len() == 1 && *one != before => Ok((*one).to_owned()),
                _ => Err(format!("{states:?}")),
            }
        })
    }

    /// What the add-on must leave alone: who the nodes are and whether pods may come, the bystander's container.
    fn others(&self) -> Value {
        let nodes = self.get(&["nodes"]).unwrap();
        let nodes = nodes["items"].as_array().unwrap().iter().map(|node| {
            json!([
                node["metadata"]["name"],
                node["metadata"]["uid"],
                node["spec"]["unschedulable"],
                node["spec"]["taints"]
            ])
        });
        let pod = self.get(&["pod", "bystander"]).unwrap();
        let container = &pod["status"]["containerStatuses"][0];
        json!([nodes.collect::<Vec<_>>(), pod["metadata"]["uid"], container["containerID"], container["restartCount"]])
    }

    /// The program on the nodes is nobody in particular and may do nothing; says how much memory it takes.
    fn look_at_processes(&self) {
        for node in &self.nodes {
            let status = node.run_sh("cat /proc/$(pgrep -x node-controller)/status").unwrap();
            let field = |name: &str| {
                let line =
                    status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap_or_default();
                line.split_whitespace().next().unwrap_or_default().to_owned()
            };
            assert_eq!((field("Uid"), field("Gid")), ("65532".to_owned(), "65532".to_owned()), "{status}");
            assert_eq!(u64::from_str_radix(&field("CapBnd"), 16).unwrap(), 0, "{status}");
            assert_eq!((field("NoNewPrivs"), field("Seccomp")), ("1".to_owned(), "2".to_owned()), "{status}");
            println!("node-controller on {} has {} kB resident", node.name(), field("VmRSS"));
        }
    }
}

fn manifests() -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../config/default").to_str().unwrap().to_owned()
}

#[tokio::test]
async fn it_installs_takes_over_and_leaves_without_a_trace_on_nodes() {
    let scene = Scene::new().await;
    let before = scene.others();
    println!("two replicas are available {} ms after kubectl apply", scene.install(&[]).as_millis());
    let controllers = scene.controllers();
    let places: BTreeSet<&str> = controllers.iter().map(|(_, node)| node.as_str()).collect();
    assert_eq!(places, BTreeSet::from(NAMES), "{controllers:?}");
    let leader = scene.leader();
    let leading = controllers.iter().filter(|(name, _)| {
        let log = scene.cluster.kubectl(&["logs", name, SYSTEM]).unwrap();
        log.lines().rfind(|line| line.contains("leadership changed")).is_some_and(|line| line.contains("true"))
    });
    assert_eq!(leading.map(|(name, _)| name).collect::<Vec<_>>(), [&leader]);

    scene.class("one");
    let first = scene.revision("");
    scene.look_at_processes();

    // The leader goes; another one does its work.
    let start = Instant::now();
    scene.cluster.kubectl(&["delete", "pod", &leader, SYSTEM, "--wait=false"]).unwrap();
    assert_ne!(scene.leader(), leader);
    println!("another one leads {} ms after the leader's pod was deleted", start.elapsed().as_millis());
    scene.class("two");
    scene.revision(&first);

    // The same once more, server-side: an upgrade to what is there changes nothing.
    let wanted = |scene: &Scene| scene.get(&["deployment", "node-controller", SYSTEM]).unwrap()["spec"].clone();
    let unchanged = wanted(&scene);
    scene.install(&["--server-side"]);
    assert_eq!(wanted(&scene), unchanged);

    let start = Instant::now();
    let config = manifests();
    scene.cluster.kubectl(&["delete", "-k", &config, "--ignore-not-found", "--timeout=100s"]).unwrap();
    println!("it was uninstalled after {} ms", start.elapsed().as_millis());
    for gone in ["namespace/nodelet-system", "crd/nodestates.nodelet.dev", "clusterrole/node-controller"] {
        let error = scene.cluster.kubectl(&["get", gone]).expect_err(gone).to_string();
        assert!(error.contains("NotFound"), "{error}");
    }
    // Kubernetes can't always collect them any more: what owned them has no definition.
    let rights = "clusterroles,clusterrolebindings";
    scene.cluster.kubectl(&["delete", rights, "-l", "nodelet.dev/node"]).unwrap();
    assert_eq!(scene.cluster.kubectl(&["get", rights, "-l", "nodelet.dev/node", "-o", "name"]).unwrap(), "");
    assert_eq!(scene.others(), before);

    // And it can come back.
    println!("installed again in {} ms", scene.install(&["--server-side"]).as_millis());
    scene.class("three");
    scene.revision("");
    assert_eq!(scene.others(), before);
}
