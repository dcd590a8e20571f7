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
