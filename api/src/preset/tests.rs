//! What each preset stands for, to the letter.
#![allow(clippy::unwrap_used)]

use crate::state::Swap;
use crate::{DesiredState, from_toml};

fn expanded(text: &str) -> DesiredState {
    from_toml::<DesiredState>(text).unwrap().expand()
}

fn content(state: &DesiredState, path: &str) -> String {
    state.files.iter().find(|file| file.path.as_str() == path).unwrap().content.clone().unwrap()
}

fn dropin(state: &DesiredState, unit: &str) -> String {
    state.units.iter().find(|own| own.name.as_str() == unit).unwrap().dropins[0].content.clone()
}

fn packages(state: &DesiredState) -> Vec<(&str, Option<&str>, Option<&str>, bool)> {
    state
        .packages
        .iter()
        .map(|package| {
            let dnf = package.dnf_name.as_ref().map(AsRef::as_ref);
            (package.name.as_str(), dnf, package.version.as_ref().map(AsRef::as_ref), package.hold)
        })
        .collect()
}

fn units(state: &DesiredState) -> Vec<&str> {
    state.units.iter().map(|unit| unit.name.as_str()).collect()
}

#[test]
fn containerd() {
    let state = expanded(
        r#"
        [runtime]
        kind = "containerd"
        version = "1.7.*"
        sandboxImage = "registry.example.org/pause:3.10"
        [runtime.config.plugins."io.containerd.grpc.v1.cri".cni]
        bin_dir = "/usr/lib/cni"
        "#,
    );
    assert_eq!(packages(&state), [("containerd", Some("containerd.io"), Some("1.7.*"), true)]);
    let config = r#"# Written by nodelet.
version = 2

[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "registry.example.org/pause:3.10"

[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "/etc/cni/net.d"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
SystemdCgroup = true
"#;
    assert_eq!(content(&state, "/etc/containerd/config.toml"), config);
    assert_eq!(units(&state), ["containerd.service"]);
    assert_eq!(state.health.cri.as_deref(), Some("unix:///run/containerd/containerd.sock"));
    assert_eq!((state.kernel.modules.len(), state.kernel.swap), (1, Swap::Leave));
}

#[test]
fn docker_alone_and_with_a_kubelet() {
    let alone = "[runtime]\nkind = \"docker\"\nconfig = { labels = [\"a=b\"], log-opts = { max-size = \"10m\" } }\n";
    let state = expanded(alone);
    assert_eq!(packages(&state), [("docker.io", Some("docker-ce"), None, true)]);
    let config = r#"{
  "exec-opts": [
    "native.cgroupdriver=systemd"
  ],
  "labels": [
    "a=b"
  ],
  "live-restore": true,
  "log-driver": "json-file",
  "log-opts": {
    "max-file": "3",
    "max-size": "10m"
  }
}
"#;
    assert_eq!(content(&state, "/etc/docker/daemon.json"), config);
    assert!(dropin(&state, "docker.service").contains("kill -HUP $$MAINPID"));
    assert_eq!((units(&state), state.health.cri.as_deref()), (vec!["docker.service"], None));

    let state = expanded(
        "[runtime]\nkind = \"docker\"\nhold = false\nsandboxImage = \"pause:1\"\n[kubelet]\nstandalone = true\n",
    );
    assert_eq!(units(&state), ["docker.service", "cri-docker.socket", "cri-docker.service", "kubelet.service"]);
    assert!(packages(&state).contains(&("cri-dockerd", None, None, false)));
    assert!(dropin(&state, "cri-docker.service").contains("--pod-infra-container-image=pause:1\n"));
    assert_eq!(state.health.cri.as_deref(), Some("unix:///run/cri-dockerd.sock"));
    assert!(content(&state, "/var/lib/kubelet/config.yaml").contains("unix:///run/cri-dockerd.sock"));
    assert!(dropin(&state, "kubelet.service").contains("After=docker.service cri-docker.service\n"));
}

/// CRI-O is not in Debian, so no test node runs it: this is all that holds its configuration.
#[test]
fn crio() {
    let text = "[runtime]\nkind = \"cri-o\"\nversion = \"1.35.*\"\nsandboxImage = \"pause:1\"\n\
                config.crio.runtime.log_level = \"debug\"\n";
    let state = expanded(text);
    assert_eq!(packages(&state), [("cri-o", None, Some("1.35.*"), true)]);
    let config = "# Written by nodelet.\n[crio.image]\npause_image = \"pause:1\"\n\n\
                  [crio.runtime]\ncgroup_manager = \"systemd\"\nlog_level = \"debug\"\n";
    assert_eq!(content(&state, "/etc/crio/crio.conf.d/20-nodelet.conf"), config);
    assert_eq!(
        (units(&state), state.health.cri.as_deref()),
        (vec!["crio.service"], Some("unix:///run/crio/crio.sock"))
    );
    let cgroupfs = expanded("[runtime]\nkind = \"cri-o\"\ncgroupDriver = \"cgroupfs\"\n");
    let config = content(&cgroupfs, "/etc/crio/crio.conf.d/20-nodelet.conf");
    assert!(config.contains("conmon_cgroup = \"pod\""), "{config}");
}

const JOINING: &str = r#"
    [runtime]
    kind = "containerd"
    [kubelet]
    version = "1.35.8"
    nodeIP = "${node.ip}"
    config = { clusterDNS = ["10.96.0.10"], protectKernelDefaults = true, authentication = { webhook = { cacheTTL = "1m" } } }
    extraArgs = { node-labels = "disk=ssd", provider-id = 'a "b" \ 50%' }
    [kubelet.bootstrap]
    server = "https://192.0.2.1:6443"
    caInline = """
    -----BEGIN CERTIFICATE-----
    """
    tokenFile = "/etc/nodelet/token"
"#;

#[test]
fn a_kubelet_that_joins() {
    let state = expanded(JOINING);
    assert_eq!(packages(&state)[1], ("kubelet", None, Some("1.35.8-*"), true));
    let config: serde_json::Value = serde_json::from_str(&content(&state, "/var/lib/kubelet/config.yaml")).unwrap();
    let wanted = serde_json::json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": true, "cacheTTL": "1m"},
            "x509": {"clientCAFile": "/etc/kubernetes/pki/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "cgroupDriver": "systemd",
        "clusterDNS": ["10.96.0.10"],
        "clusterDomain": "cluster.local",
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "protectKernelDefaults": true,
        "rotateCertificates": true,
        "staticPodPath": "/etc/kubernetes/manifests",
    });
    assert_eq!(config, wanted);
    let unit = r#"# Written by nodelet.
[Unit]
Wants=containerd.service
After=containerd.service

[Service]
ExecStart=
ExecStart=/usr/bin/kubelet \
  --config=/var/lib/kubelet/config.yaml \
  --hostname-override=${node.name} \
  --bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf \
  --kubeconfig=/etc/kubernetes/kubelet.conf \
  --node-ip=${node.ip} \
  --node-labels=disk=ssd \
  "--provider-id=a \"b\" \\ 50%%"
"#;
    assert_eq!(dropin(&state, "kubelet.service"), unit);

    let kubeconfig = state.files.iter().find(|file| file.path.as_str().ends_with("bootstrap-kubelet.conf")).unwrap();
    assert_eq!(kubeconfig.mode_bits(), 0o600);
    assert!(kubeconfig.content.as_ref().unwrap().contains("\"tokenFile\": \"/etc/nodelet/token\""));
    assert!(content(&state, "/etc/kubernetes/pki/ca.crt").starts_with("-----BEGIN"));

    let modules: Vec<&str> = state.kernel.modules.iter().map(AsRef::as_ref).collect();
    assert_eq!((modules, state.kernel.swap), (vec!["overlay", "br_netfilter"], Swap::Off));
    assert_eq!(state.kernel.sysctl.len(), 9, "{:?}", state.kernel.sysctl);
    assert_eq!(state.health.kubelet.as_deref(), Some("http://127.0.0.1:10248/healthz"));
}

#[test]
fn swap_and_health_follow_the_configuration() {
    let state = expanded("[kubelet]\nconfig = { failSwapOn = false, healthzPort = 0 }\n");
    assert_eq!((state.kernel.swap, state.health.kubelet, state.health.cri), (Swap::Leave, None, None));
    let elsewhere = "[kubelet]\nconfig = { healthzPort = 1, healthzBindAddress = \"::1\", \
                     containerRuntimeEndpoint = \"unix:///run/x.sock\" }\n";
    let state = expanded(elsewhere);
    assert_eq!(state.health.kubelet.as_deref(), Some("http://[::1]:1/healthz"));
    assert_eq!(state.health.cri.as_deref(), Some("unix:///run/x.sock"));
}

/// Without a way to join it would only fail and start again, until something else gives it a credential.
#[test]
fn a_kubelet_that_cannot_join_is_not_asked_to_run() {
    for (more, running) in [("", None), ("standalone = true\n", Some(true))] {
        let state = expanded(&format!("[kubelet]\n{more}"));
        assert_eq!((state.units[0].enabled, state.units[0].running), (Some(true), running));
        assert_eq!(dropin(&state, "kubelet.service").contains("--kubeconfig="), running.is_none());
    }
}

#[test]
fn what_the_state_says_itself_wins() {
    let state = expanded(
        r#"
        [runtime]
        kind = "containerd"
        [kubelet]
        standalone = true
        [[packages]]
        name = "containerd"
        version = "2.0"
        [[files]]
        path = "/etc/containerd/config.toml"
        content = "own"
        [[files]]
        path = "/etc/systemd/system/kubelet.service.d/20-nodelet.conf"
        content = "own"
        [[units]]
        name = "containerd.service"
        running = false
        [[units.dropins]]
        name = "10-own.conf"
        content = "[Service]"
        [kernel]
        modules = ["br-netfilter"]
        sysctl = { "net.ipv4.ip_forward" = "0" }
        [health]
        cri = "unix:///run/own.sock"
        "#,
    );
    assert_eq!(packages(&state), [("containerd", None, Some("2.0"), false), ("kubelet", None, None, true)]);
    assert_eq!(content(&state, "/etc/containerd/config.toml"), "own");
    let containerd = &state.units[0];
    assert_eq!((containerd.enabled, containerd.running, containerd.dropins.len()), (Some(true), Some(false), 1));
    assert!(state.units[1].dropins.is_empty(), "the state writes the drop-in as a file");
    let modules: Vec<&str> = state.kernel.modules.iter().map(AsRef::as_ref).collect();
    assert_eq!(modules, ["br-netfilter", "overlay"]);
    assert_eq!(state.kernel.sysctl["net.ipv4.ip_forward"], "0");
    assert_eq!(state.health.cri.as_deref(), Some("unix:///run/own.sock"));
}
