//! Real kubelets with containerd, and pods on them.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node as NodeObject, Pod};
use kube::api::{EvictParams, ListParams};
use kube::{Api, Client};
use serde_json::json;
use testbed::cluster::{BUSYBOX, Cluster, JoinOptions, cluster, node_is_ready};
use testbed::wait::{Seen, wait_until_async};

const LIMIT: Duration = Duration::from_secs(120);

/// A pod that stays on one node, with labels to find it by.
fn pod(name: &str, node: &str, command: &str) -> String {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 5,
            "automountServiceAccountToken": false,
            "containers": [{
                "name": "main",
                "image": BUSYBOX,
                "imagePullPolicy": "Never",
                "command": ["sh", "-c", command],
            }],
        },
    })
    .to_string()
}

const STAY: &str = "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done";

async fn running(client: &Client, name: &str) -> Pod {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    wait_until_async(&format!("the pod {name} to run"), LIMIT, || async {
        let pod = pods.get(name).await?;
        let ready = pod
            .status
            .as_ref()
            .and_then(|status| status.container_statuses.as_ref())
            .is_some_and(|all| !all.is_empty() && all.iter().all(|container| container.ready));
        Ok(if ready { Seen::Done(pod) } else { Seen::not_yet(serde_json::to_string(&pod.status)?) })
    })
    .await
    .unwrap()
}

async fn gone(client: &Client, name: &str) {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    wait_until_async(&format!("the pod {name} to be gone"), LIMIT, || async {
        Ok(match pods.get_opt(name).await? {
            None => Seen::Done(()),
            Some(pod) => Seen::not_yet(format!("{:?}", pod.status.and_then(|status| status.phase))),
        })
    })
    .await
    .unwrap();
}

fn service_account(cluster: &Cluster) {
    // Made by the controller manager a moment after the namespace; a pod is refused without it.
    testbed::wait_until("the default service account", LIMIT, || {
        Ok(match cluster.kubectl(&["get", "serviceaccount", "default"]) {
            Ok(_) => Seen::Done(()),
            Err(error) => Seen::not_yet(error),
        })
    })
    .unwrap();
}

#[tokio::test]
async fn a_pod_runs_and_is_evicted_when_its_budget_allows() {
    let cluster = cluster().unwrap();
    let client = cluster.client().await.unwrap();
    let node = cluster.join("evict").await.unwrap();
    service_account(&cluster);
    cluster.apply(&pod("precious", "evict", STAY)).unwrap();
    let budget = |minimum: u8| {
        json!({
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "precious"},
            "spec": {"minAvailable": minimum, "selector": {"matchLabels": {"app": "precious"}}},
        })
        .to_string()
    };
    cluster.apply(&budget(1)).unwrap();
    running(&client, "precious").await;
    assert!(node.run(&["ctr", "-n", "k8s.io", "containers", "list"]).unwrap().contains(BUSYBOX));

    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let refused = pods.evict("precious", &EvictParams::default()).await.unwrap_err();
    assert!(matches!(&refused, kube::Error::Api(status) if status.code == 429), "{refused}");

    cluster.apply(&budget(0)).unwrap();
    wait_until_async("the eviction to be allowed", LIMIT, || async {
        Ok(match pods.evict("precious", &EvictParams::default()).await {
            Ok(_) => Seen::Done(()),
            Err(kube::Error::Api(status)) if status.code == 429 => Seen::not_yet(status),
            Err(error) => return Err(error.into()),
        })
    })
    .await
    .unwrap();
    gone(&client, "precious").await;
    cluster.kubectl(&["delete", "pdb", "precious"]).unwrap();
}

/// Two kubelets on one machine must not see each other's control groups, or each would kill the other's pods.
#[tokio::test]
async fn two_kubelets_leave_each_other_alone() {
    let cluster = cluster().unwrap();
    let client = cluster.client().await.unwrap();
    let (left, right) = std::thread::scope(|scope| {
        let left = scope.spawn(|| cluster.start_kubelet("left", &JoinOptions::default()).unwrap());
        let right = scope.spawn(|| cluster.start_kubelet("right", &JoinOptions::default()).unwrap());
        (left.join().unwrap(), right.join().unwrap())
    });
    for node in [&left, &right] {
        cluster.wait_until_node_ready(node.name()).await.unwrap();
    }
    cluster.connect_pods(&left, &right).unwrap();
    service_account(&cluster);
    let serve = "trap 'exit 0' TERM; echo hello > /index.html; httpd -f -p 80 -h / & wait $!";
    cluster.apply(&pod("on-left", "left", serve)).unwrap();
    cluster.apply(&pod("on-right", "right", STAY)).unwrap();
    let served = running(&client, "on-left").await;
    let before = running(&client, "on-right").await;

    let address = served.status.unwrap().pod_ip.unwrap();
    let said =
        cluster.kubectl(&["exec", "on-right", "--", "wget", "-q", "-O-", &format!("http://{address}/")]).unwrap();
    assert_eq!(said, "hello");

    // A kubelet that starts looks at all pods that it can see, and ends those that it does not know.
    left.run(&["systemctl", "restart", "kubelet.service"]).unwrap();
    left.wait_for("the kubelet to be well", LIMIT, "curl -fsS http://127.0.0.1:10248/healthz").unwrap();
    cluster.wait_until_node_ready("left").await.unwrap();
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    for name in ["on-left", "on-right"] {
        let pod = pods.get(name).await.unwrap();
        let restarts: i32 = pod.status.unwrap().container_statuses.unwrap().iter().map(|one| one.restart_count).sum();
        assert_eq!(restarts, 0, "{name} was restarted");
    }
    let after = pods.get("on-right").await.unwrap();
    let id = |pod: &Pod| pod.status.clone().unwrap().container_statuses.unwrap()[0].container_id.clone();
    assert_eq!(id(&before), id(&after));
    assert!(!left.run_sh("ctr -n k8s.io task list").unwrap().is_empty());
    cluster.kubectl(&["delete", "pod", "on-left", "on-right", "--wait=false"]).unwrap();
}

#[tokio::test]
async fn a_node_is_ready_again_after_a_reboot() {
    let cluster = cluster().unwrap();
    let client = cluster.client().await.unwrap();
    let node = cluster.join("rebooted").await.unwrap();
    let nodes: Api<NodeObject> = Api::all(client);
    let boot_id = |node: &NodeObject| node.status.clone().unwrap().node_info.unwrap().boot_id;
    let before = boot_id(&nodes.get("rebooted").await.unwrap());
    assert_eq!(before, node.boot_id().unwrap());

    node.reboot().unwrap();
    wait_until_async("the cluster to see the new boot id", LIMIT, || async {
        let object = nodes.get("rebooted").await?;
        Ok(if boot_id(&object) != before && node_is_ready(&object) {
            Seen::Done(())
        } else {
            Seen::not_yet(format!("boot id {}", boot_id(&object)))
        })
    })
    .await
    .unwrap();
    assert_eq!(boot_id(&nodes.get("rebooted").await.unwrap()), node.boot_id().unwrap());
    let requests: Api<k8s_openapi::api::certificates::v1::CertificateSigningRequest> =
        Api::all(cluster.client().await.unwrap());
    let asked = requests.list(&ListParams::default()).await.unwrap();
    assert!(asked.items.iter().any(|one| one.spec.signer_name == "kubernetes.io/kube-apiserver-client-kubelet"));
}
