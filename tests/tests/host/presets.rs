//! Presets on real nodes: Debian's own containerd and docker, and the real kubelet, from an offline repository.
//! CRI-O is not in Debian 12, so only unit tests hold its preset.

use std::path::PathBuf;
use std::time::Duration;

use testbed::image::Kind;
use testbed::repository::Repository;
use testbed::{NodeOptions, debian, dummy, kubernetes, nodelet, slot};

use crate::converge::Scene;

/// Starting a runtime or a kubelet takes seconds; this is for a machine that is busy with something else.
const SOON: Duration = Duration::from_secs(90);

/// Makes the cgroup v1 controllers writable, which nspawn mounts read-only. With cgroup v2 there is nothing to do.
const CGROUPS: &str = "for controller in cpuset cpu cpuacct memory pids devices freezer blkio; do
    dir=/sys/fs/cgroup/$controller
    if mountpoint -q $dir; then umount $dir; mount -t cgroup -o $controller cgroup $dir; fi
done";

/// A node that has none of the software, and a repository that has these packages of Debian's, with what they need.
fn scene(name: &str, debian_packages: &[&str], own: &[dummy::Package], binds: &[(PathBuf, &str)]) -> Scene {
    let slot = slot().unwrap();
    let mut repository = Repository::new("software", slot.dir().join(format!("repository-{name}"))).unwrap();
    let debs = debian::download(&Kind::Base.image().unwrap(), debian_packages).unwrap();
    repository.publish_files(&debs).unwrap();
    repository.publish(own).unwrap();
    let mut options = NodeOptions::new(name, Kind::Base).bind(repository.dir(), repository.bound_at());
    for (source, target) in binds {
        options = options.bind(source, *target);
    }
    // The node's disk is an overlay, and the runtimes make overlays here, which can't lie on one another.
    for path in ["/var/lib/containerd", "/var/lib/docker", "/var/lib/kubelet"] {
        let source = slot.dir().join(format!("data-{name}{}", path.replace('/', "-")));
        std::fs::create_dir_all(&source).unwrap();
        options = options.bind_writable(source, path);
    }
    let node = nodelet::node(options).unwrap();
    node.write_file("/etc/nodelet/keys/software.asc", repository.public_key().unwrap(), 0o644).unwrap();
    node.run_sh(CGROUPS).unwrap();
    nodelet::install(&node, None).unwrap();
    Scene { node, repository }
}

impl Scene {
    /// A state with the repository and presets.
    fn with_presets(&self, presets: &str) -> String {
        let address = format!("file://{}/apt", self.repository.bound_at());
        format!(
            "{presets}\n[[repositories]]\nname = \"software\"\n[repositories.apt]\nuris = [\"{address}\"]\n\
             suites = [\"stable\"]\ncomponents = [\"main\"]\nkey = {{ file = \"/etc/nodelet/keys/software.asc\" }}\n"
        )
    }

    /// Waits until the node is as its state file wants it, and a second look finds nothing to do.
    fn wait_until_converged(&self) {
        let waited = self.node.wait_for("the node to be as wanted", SOON, "nodelet status && nodelet plan");
        waited.unwrap_or_else(|error| panic!("{error:#}\n{}", self.node.journal("nodelet").unwrap()));
    }
}

#[test]
fn containerd_comes_up_and_serves_pods() {
    let scene = scene("preset-containerd", &["containerd"], &[], &[]);
    let node = &scene.node;
    let cri = "[runtime.config.plugins.\"io.containerd.grpc.v1.cri\"]";
    let state = scene.with_presets(&format!(
        "[runtime]\nkind = \"containerd\"\nversion = \"1.6.*\"\nsandboxImage = \"registry.local/pause:1\"\n\
         {cri}\nrestrict_oom_score_adj = true\n"
    ));
    scene.hand_over(&state);
    scene.wait_until_converged();

    let versions = node.run(&["ctr", "version"]).unwrap();
    assert!(versions.contains("Server:") && versions.contains("1.6."), "{versions}");
    let plugins = node.run_sh("ctr plugins ls | grep -w cri").unwrap();
    assert!(plugins.contains("io.containerd.grpc.v1") && plugins.contains(" ok"), "{plugins}");
    // What containerd itself makes of the file: the preset's, the state's own, and its defaults for all else.
    let dump = node.run(&["containerd", "config", "dump"]).unwrap();
    for line in [
        "SystemdCgroup = true",
        "sandbox_image = \"registry.local/pause:1\"",
        "restrict_oom_score_adj = true",
        "default_runtime_name = \"runc\"",
        "bin_dir = \"/opt/cni/bin\"",
    ] {
        assert!(dump.contains(line), "no {line} in:\n{dump}");
    }
    assert_eq!(node.run(&["systemctl", "is-enabled", "containerd.service"]).unwrap(), "enabled");
    assert_eq!(node.run(&["apt-mark", "showhold"]).unwrap(), "containerd");

    // What `render` shows is a state file that wants just the same.
    node.run_sh("nodelet render > /root/expanded.toml").unwrap();
    let expanded = node.read_file("/root/expanded.toml").unwrap();
    assert!(expanded.contains("cri = \"unix:///run/containerd/containerd.sock\""), "{expanded}");
    assert_eq!(node.exec(&["nodelet", "plan", "/root/expanded.toml"]).unwrap().code(), 0);
    let again = node.run(&["nodelet", "render", "/root/expanded.toml"]).unwrap();
    let body = |text: &str| text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(body(&again), body(&expanded));
    let refused = node.sh("echo '[runtime]' > /root/bad.toml; nodelet render /root/bad.toml").unwrap();
    assert_eq!(refused.code(), 78, "{}", refused.text());
}

/// docker that ran without live-restore, with a container in it, is taken over: the container goes on.
#[test]
fn docker_is_taken_over_without_stopping_its_containers() {
    let busybox = (PathBuf::from("/bin/busybox"), "/usr/lib/testbed/busybox");
    let scene = scene("preset-docker", &["docker.io"], &[], &[busybox]);
    let node = &scene.node;
    let info = || node.run(&["docker", "info", "-f", "{{.LiveRestoreEnabled}} {{.CgroupDriver}}"]).unwrap();

    scene.repository.add_to_apt(node, &format!("file://{}", scene.repository.bound_at())).unwrap();
    node.run_sh("apt-get update -qq && apt-get install -y --no-install-recommends docker.io </dev/null").unwrap();
    let before = info();
    assert!(before.starts_with("false "), "{before}");
    let driver = before.trim_start_matches("false ");
    node.run_sh(
        "mkdir -p /tmp/image/bin && cp /usr/lib/testbed/busybox /tmp/image/bin/ && \
         tar -C /tmp/image -c . | docker import - local/busybox >/dev/null && \
         docker run -d --name worker --network none local/busybox /bin/busybox sleep 100000",
    )
    .unwrap();
    let process = || node.run(&["docker", "inspect", "-f", "{{.State.Running}} {{.State.Pid}}", "worker"]).unwrap();
    let worker = process();
    let daemon = || node.run(&["systemctl", "show", "-P", "MainPID", "docker.service"]).unwrap();
    let first = daemon();
    node.run_sh("rm /etc/apt/sources.list.d/software.sources /etc/apt/keyrings/software.asc").unwrap();

    let preset = format!("[runtime]\nkind = \"docker\"\ncgroupDriver = \"{driver}\"\n");
    scene.hand_over(&scene.with_presets(&preset));
    scene.wait_until_converged();
    assert_eq!(info(), format!("true {driver}"));
    assert_ne!(daemon(), first, "docker was not restarted");
    assert_eq!(process(), worker, "the container did not go on");

    // A field that a reload would not take up.
    let logs = "config = { log-opts = { max-size = \"1m\" } }\n";
    scene.hand_over(&scene.with_presets(&format!("{preset}{logs}")));
    node.wait_for("the new limit", SOON, "grep -q '\"max-size\": \"1m\"' /etc/docker/daemon.json").unwrap();
    scene.wait_until_converged();
    assert_eq!(process(), worker, "the container did not go on");
    node.run_sh("docker run -d --name other --network none local/busybox /bin/busybox sleep 100000").unwrap();
    let size = node.run(&["docker", "inspect", "-f", "{{index .HostConfig.LogConfig.Config \"max-size\"}}", "other"]);
    assert_eq!(size.unwrap(), "1m");

    let refused = node
        .sh("printf '[runtime]\\nkind = \"docker\"\\nconfig.live-restore = false\\n' | nodelet validate /dev/stdin");
    let refused = refused.unwrap();
    assert!(refused.code() == 78 && refused.stdout.contains("all containers would stop"), "{}", refused.text());
}

#[test]
fn docker_comes_up_with_live_restore() {
    let scene = scene("preset-new-docker", &["docker.io"], &[], &[]);
    scene.hand_over(&scene.with_presets("[runtime]\nkind = \"docker\"\n"));
    scene.wait_until_converged();
    let info =
        scene.node.run(&["docker", "info", "-f", "{{.LiveRestoreEnabled}} {{.CgroupDriver}} {{.LoggingDriver}}"]);
    assert_eq!(info.unwrap(), "true systemd json-file");
}

/// Where the nodes see the kubelets of the test bed.
const KUBELETS: &str = "/usr/lib/testbed/kubelets";

/// A package as upstream's is: the program, and a unit that runs it without a flag. Nothing in it restarts the unit.
/// The program is a link to the real one, which would take half a minute to pack.
fn kubelet_package(version: &str, program: &str) -> dummy::Package {
    let unit = "[Unit]\nDescription=kubelet: The Kubernetes Node Agent\n\n[Service]\nExecStart=/usr/bin/kubelet\n\
                Restart=always\nStartLimitInterval=0\nRestartSec=10\n\n[Install]\nWantedBy=multi-user.target\n";
    dummy::Package::new("kubelet", version)
        .revision("1.1")
        .symlink("/usr/bin/kubelet", format!("{KUBELETS}/{program}"))
        .file("/usr/lib/systemd/system/kubelet.service", 0o644, unit)
}

/// kubeadm's package, as far as it concerns the kubelet: its drop-in must not win.
fn kubeadm_package() -> dummy::Package {
    let dropin = "[Service]\nExecStart=\nExecStart=/bin/false kubeadm\n";
    dummy::Package::new("kubeadm", "1.35.8").file(
        "/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf",
        0o644,
        dropin,
    )
}

#[test]
fn the_kubelet_takes_its_configuration() {
    let binaries = kubernetes::binaries().unwrap();
    let version = binaries.version().trim_start_matches('v').to_owned();
    let (older, older_version) = ("kubelet-v1.34.9", "1.34.9");
    binaries.kubelet_as("v1.34.9").unwrap();
    let packages = [kubelet_package(older_version, older), kubelet_package(&version, "kubelet"), kubeadm_package()];
    let kubelets = (binaries.dir().to_owned(), KUBELETS);
    let scene = scene("preset-kubelet", &["containerd"], &packages, &[kubelets]);
    let node = &scene.node;

    // Nodes have no default route here, so `${node.ip}` is not known.
    let address = node.address();
    // `failCgroupV1`: this machine may be an old one. Eviction would look at the machine's real disk.
    let state = |version: &str, more: &str| {
        scene.with_presets(&format!(
            "[runtime]\nkind = \"containerd\"\nsandboxImage = \"registry.local/pause:1\"\n\
             [runtime.config.plugins.\"io.containerd.grpc.v1.cri\"]\nrestrict_oom_score_adj = true\n\
             [kubelet]\nversion = \"{version}\"\nextraArgs = {{ v = \"2\" }}\nnodeIP = \"{address}\"\n\
             [kubelet.config]\nfailCgroupV1 = false\nevictionHard = {{ \"nodefs.available\" = \"0%\" }}\n\
             {more}\n[[packages]]\nname = \"kubeadm\"\n"
        ))
    };
    let alone = |version: &str| state(version, "").replace("[kubelet]\n", "[kubelet]\nstandalone = true\n");
    scene.hand_over(&alone(older_version));
    scene.wait_until_converged();
    let healthy = "test \"$(curl -sf http://127.0.0.1:10248/healthz)\" = ok && systemctl -q is-active kubelet";
    let wait_until_healthy = || {
        let waited = node.wait_for("the kubelet to be well", SOON, healthy);
        waited.unwrap_or_else(|error| panic!("{error:#}\n{}", node.journal("kubelet").unwrap()));
    };
    wait_until_healthy();
    let log = node.journal("kubelet").unwrap();
    for text in ["Standalone mode", "Container runtime initialized", older_version] {
        assert!(log.contains(text), "no {text:?} in:\n{log}");
    }
    for text in ["failed to load kubelet config file", "unknown field", "Failed to load Kubelet"] {
        assert!(!log.contains(text), "{text:?} in:\n{log}");
    }
    let command = "tr '\\0' ' ' < /proc/$(systemctl show -P MainPID kubelet)/cmdline";
    let flags = node.run_sh(command).unwrap();
    let wanted = format!("--hostname-override=preset-kubelet --node-ip={address} --v=2");
    assert!(flags.contains(&wanted), "{flags}");

    // As far as a container node can: the kernel is the machine's.
    for (key, value) in [
        ("net/ipv4/ip_forward", "1"),
        ("net/bridge/bridge-nf-call-iptables", "1"),
        ("net/bridge/bridge-nf-call-ip6tables", "1"),
    ] {
        assert_eq!(node.read_file(&format!("/proc/sys/{key}")).unwrap(), value, "{key}");
    }
    assert_eq!(
        node.read_file("/etc/modules-load.d/nodelet.conf").unwrap().lines().skip(1).collect::<Vec<_>>(),
        ["br_netfilter", "overlay"]
    );
    assert_eq!(node.read_file("/proc/swaps").unwrap().lines().count(), 1);

    // A new version runs, although the package restarts nothing.
    scene.hand_over(&alone(&version));
    let running = format!("readlink /proc/$(systemctl show -P MainPID kubelet)/exe | grep -qx {KUBELETS}/kubelet");
    node.wait_for("the new kubelet", SOON, &running).unwrap();
    scene.wait_until_converged();
    wait_until_healthy();

    // The same kubelet is to join: its credential is where only it looks.
    node.write_file("/etc/nodelet/token", "testbd.0123456789abcdef\n", 0o600).unwrap();
    let bootstrap = format!(
        "[kubelet.bootstrap]\nserver = \"https://127.0.0.1:1\"\ncaInline = '''\n{}'''\ntokenFile = \"/etc/nodelet/token\"\n",
        authority()
    );
    scene.hand_over(&state(&version, &bootstrap));
    node.wait_for("the kubeconfig that the kubelet makes of it", SOON, "test -e /etc/kubernetes/kubelet.conf")
        .unwrap_or_else(|error| {
            panic!("{error:#}\n{}\n{}", node.journal("nodelet").unwrap(), node.journal("kubelet").unwrap())
        });
    assert_eq!(node.run(&["stat", "-c", "%a", "/etc/kubernetes/bootstrap-kubelet.conf"]).unwrap(), "600");
    let asking = "journalctl -u kubelet --no-pager | grep -q 'https://127.0.0.1:1/apis/certificates.k8s.io'";
    node.wait_for("its request for a certificate", SOON, asking)
        .unwrap_or_else(|error| panic!("{error:#}\n{}", node.journal("kubelet").unwrap()));
    let secret = "0123456789abcdef";
    for (what, text) in [
        ("the plan", node.exec(&["nodelet", "plan"]).unwrap().text()),
        ("the state", node.run(&["nodelet", "render"]).unwrap()),
        ("the log", node.journal("nodelet").unwrap()),
        ("the kubeconfig", node.read_file("/etc/kubernetes/bootstrap-kubelet.conf").unwrap()),
    ] {
        assert!(!text.contains(secret), "{what} holds the token");
    }
}

/// Any certificate will do: nobody answers at the address.
fn authority() -> String {
    let parameters = rcgen::CertificateParams::new(vec!["testbed".to_owned()]).unwrap();
    parameters.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().pem()
}
