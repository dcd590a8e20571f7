//! The custom resources at a real API server.

use std::path::Path;
use std::sync::OnceLock;

use testbed::cluster::{Cluster, cluster};

/// Installs the definitions, once for all tests that share the control plane.
pub(crate) fn define(cluster: &Cluster) {
    static DONE: OnceLock<()> = OnceLock::new();
    DONE.get_or_init(|| define_in(cluster));
}

/// Installs the definitions.
pub(crate) fn define_in(cluster: &Cluster) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../config/crd");
    cluster.kubectl(&["apply", "--server-side", "-k", directory.to_str().unwrap()]).unwrap();
    for name in ["nodeclasses", "nodesets", "nodestates"] {
        let definition = format!("crd/{name}.nodelet.dev");
        cluster.kubectl(&["wait", "--for=condition=Established", "--timeout=30s", &definition]).unwrap();
    }
}

fn class(name: &str, state: &str) -> String {
    format!("apiVersion: nodelet.dev/v1alpha1\nkind: NodeClass\nmetadata: {{name: {name}}}\nspec:\n  state: {state}\n")
}

#[test]
fn good_objects_are_taken() {
    let cluster = cluster().unwrap();
    define(&cluster);
    let state = r#"{runtime: {kind: containerd, version: "1.7.*", config: {plugins: {x: {y: 1}}}},
        packages: [{name: extra, version: "1.0", allowDowngrade: true}],
        files: [{path: /etc/x.conf, mode: "0640", content: "ä ${node.name}"}],
        units: [{name: x.service, running: true, dropins: [{name: 1.conf, content: "[Service]"}]}],
        kernel: {modules: [overlay], sysctl: {net.ipv4.ip_forward: "1"}, swap: "off"},
        health: {timeoutSeconds: 30}}"#;
    cluster.apply(&class("good", state)).unwrap();
    let set = "apiVersion: nodelet.dev/v1alpha1\nkind: NodeSet\nmetadata: {name: good}\n\
               spec: {classRef: {name: good}, selector: {matchLabels: {role: none}}, replicas: 0}\n";
    cluster.apply(set).unwrap();
    cluster.kubectl(&["scale", "nodeset/good", "--replicas=2"]).unwrap();
    assert_eq!(cluster.kubectl(&["get", "nset", "good", "-o", "jsonpath={.spec.replicas}"]).unwrap(), "2");
    let table = cluster.kubectl(&["get", "nclass,nset,nst"]).unwrap();
    assert!(table.contains("RUNTIME") && table.contains("containerd") && table.contains("UPDATED"), "{table}");
    // A second author's packages are merged by name, and don't replace the first's.
    for (author, state) in [("first", "{packages: [{name: one}]}"), ("second", "{packages: [{name: other}]}")] {
        let path = cluster.slot().dir().join(format!("{author}.yaml"));
        std::fs::write(&path, class("shared", state)).unwrap();
        let manager = format!("--field-manager={author}");
        cluster.kubectl(&["apply", "--server-side", &manager, "-f", path.to_str().unwrap()]).unwrap();
    }
    let names = cluster.kubectl(&["get", "nclass", "shared", "-o", "jsonpath={.spec.state.packages[*].name}"]).unwrap();
    assert_eq!(names, "one other");
    let explained = cluster.kubectl(&["explain", "nodeclass.spec.state.packages.hold"]).unwrap();
    assert!(explained.contains("apt-mark hold"), "{explained}");
}

#[test]
fn bad_objects_are_refused_with_a_way_out() {
    let cluster = cluster().unwrap();
    define(&cluster);
    let states = [
        ("{files: [{path: etc/x, content: a}]}", "write a plain path from the root"),
        ("{files: [{path: /etc/../x, content: a}]}", "write a plain path from the root"),
        ("{files: [{path: /x, mode: \"9\", content: a}]}", "three or four octal digits"),
        ("{files: [{path: /x}]}", "exactly one of `content` and `contentFrom`"),
        ("{files: [{path: /x, contentFrom: {}}]}", "exactly one of `secretRef`, `configMapRef` and `file`"),
        ("{files: [{path: /x, content: a}, {path: /x, content: b}]}", "Duplicate value"),
        ("{units: [{name: kubelet, running: true}]}", "such as kubelet.service"),
        ("{units: [{name: a.service}]}", "the unit says nothing"),
        ("{units: [{name: a.service, masked: true, running: true}]}", "a masked unit can't be"),
        ("{packages: [{name: a b}]}", "write the name of a package"),
        ("{packages: [{name: a, allowDowngrade: true}]}", "nothing is ever downgraded"),
        ("{packages: [{name: a, state: absent, version: \"1\"}]}", "has no `version`"),
        ("{repositories: [{name: a}]}", "say where the packages are"),
        ("{kernel: {sysctl: {nodots: \"1\"}}}", "with dots, such as net.ipv4.ip_forward"),
        ("{health: {timeoutSeconds: 5, stableSeconds: 5}}", "could never pass in time"),
        ("{runtime: {kind: rkt}}", "supported values: \"containerd\", \"docker\", \"cri-o\""),
        ("{pakages: []}", "unknown field \"spec.state.pakages\""),
    ];
    for (state, words) in states {
        let refused = cluster.apply(&class("bad", state)).expect_err(state).to_string();
        assert!(refused.contains(words), "{state}: no {words:?} in:\n{refused}");
    }
    let set = |spec: &str| {
        format!("apiVersion: nodelet.dev/v1alpha1\nkind: NodeSet\nmetadata: {{name: bad}}\nspec: {spec}\n")
    };
    let gate = |gate: &str| {
        format!("{{classRef: {{name: a}}, selector: {{matchLabels: {{a: b}}}}, health: {{gates: [{{{gate}}}]}}}}")
    };
    for (spec, words) in [
        ("{classRef: {name: a}}", "add a `selector`"),
        ("{selector: {matchLabels: {a: b}}}", "spec.classRef: Required value"),
        ("{classRef: {name: a}, selector: {matchExpressions: [{key: a, operator: In}]}}", "need `values`"),
        (&*gate("name: a"), "write exactly one of `http`, `object`, `prometheus`, `job` and `units`"),
        (&*gate("name: a, http: {url: 'ftp://a'}"), "write the address with http:// or https://"),
        (&*gate("name: a, http: {url: 'http://a', tokenSecretRef: {name: a, key: b}}"), "go with https://"),
        (&*gate("name: a, http: {url: 'https://a', caBundle: x}"), "write certificates in PEM"),
        (&*gate("name: a, object: {apiVersion: v1, kind: Pod, name: a}"), "write exactly one of `condition`"),
        (&*gate("name: a, object: {apiVersion: v1, kind: Secret, name: a, cel: 'true'}"), "don't look into Secrets"),
        (&*gate("name: a, object: {apiVersion: /v1, kind: Secret, name: a, cel: 'true'}"), "such as v1 or apps/v1"),
        (
            &*gate("name: a, object: {apiVersion: v1, kind: Pod, namespace: 'a/secrets/b?c=', name: a, cel: 'true'}"),
            "without /, ?, #, %",
        ),
        (
            &*gate("name: a, http: {url: 'https://a', tokenSecretRef: {name: a/b, key: b}}"),
            "write the name of a Secret",
        ),
        (&*gate("name: a, job: {namespace: a/b, template: {spec: {}}}"), "write the name of a namespace"),
        (&*gate("name: A, job: {namespace: a, template: {spec: {}}}"), "write the gate's in small letters"),
        (&*gate("name: a, job: {namespace: a, template: {}}"), "template.spec: Required value"),
        (&*gate("name: a, units: [kubelet]"), "such as kubelet.service"),
    ] {
        let refused = cluster.apply(&set(spec)).expect_err(spec).to_string();
        assert!(refused.contains(words), "{spec}: no {words:?} in:\n{refused}");
    }
}
