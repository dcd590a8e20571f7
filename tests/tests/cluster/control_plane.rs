//! The control plane itself.

use k8s_openapi::api::core::v1::{ConfigMap, Node as NodeObject, Secret};
use kube::Api;
use kube::api::ListParams;
use testbed::cluster::{Cluster, cluster};
use testbed::slot::Slot;

#[tokio::test]
async fn serves_the_version_of_go_mod() {
    let cluster = cluster().unwrap();
    let version = cluster.client().await.unwrap().apiserver_version().await.unwrap();
    assert_eq!(version.git_version, cluster.binaries().version());
}

#[tokio::test]
async fn a_node_credential_may_not_read_secrets_or_other_nodes() {
    let cluster = cluster().unwrap();
    let client = cluster.client_for("system:node:somebody", &["system:nodes"]).await.unwrap();
    let secrets: Api<Secret> = Api::namespaced(client.clone(), "kube-system");
    let refused = secrets.list(&ListParams::default()).await.unwrap_err();
    assert!(matches!(&refused, kube::Error::Api(status) if status.code == 403), "{refused}");
    let nodes: Api<NodeObject> = Api::all(client);
    let refused = nodes.delete("somebody-else", &kube::api::DeleteParams::default()).await.unwrap_err();
    assert!(matches!(&refused, kube::Error::Api(status) if status.code == 403), "{refused}");
}

/// With a control plane of its own, so that other tests are not disturbed.
#[tokio::test]
async fn restarts_and_crashes_lose_nothing() {
    let cluster = Cluster::start(&Slot::take().unwrap()).unwrap();
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client().await.unwrap());
    cluster.kubectl(&["create", "configmap", "kept", "--from-literal=a=b"]).unwrap();

    cluster.api_server.stop().unwrap();
    assert!(maps.get("kept").await.is_err(), "a stopped API server must not answer");
    cluster.api_server.start().unwrap();
    cluster.wait_until_ready().unwrap();
    maps.get("kept").await.unwrap();

    cluster.etcd.kill().unwrap();
    cluster.etcd.start().unwrap();
    cluster.wait_until_ready().unwrap();
    maps.get("kept").await.unwrap();
}

/// `node-controller preflight` as an administrator, and as somebody who may do nothing.
#[tokio::test]
async fn preflight_says_whether_the_cluster_can_take_the_controller() {
    let cluster = cluster().unwrap();
    let preflight = |kubeconfig: &std::path::Path| {
        let program = testbed::paths::program("node-controller").unwrap();
        std::process::Command::new(program).arg("preflight").env("KUBECONFIG", kubeconfig).output().unwrap()
    };
    let good = preflight(&cluster.kubeconfig());
    let said = String::from_utf8_lossy(&good.stdout).into_owned();
    assert!(good.status.success(), "{said}{}", String::from_utf8_lossy(&good.stderr));
    assert!(said.contains(&format!("ok  the API server is {}", cluster.binaries().version())), "{said}");
    assert!(said.contains("ok  you may create customresourcedefinitions.apiextensions.k8s.io"), "{said}");

    let nobody = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(nobody.path(), cluster.kubeconfig_for("nobody", &[]).unwrap()).unwrap();
    let bad = preflight(nobody.path());
    let said = String::from_utf8_lossy(&bad.stdout).into_owned();
    assert_eq!(bad.status.code(), Some(1), "{said}");
    assert!(
        said.contains("NO  you may not create deployments.apps: install with the rights of cluster-admin"),
        "{said}"
    );
}
