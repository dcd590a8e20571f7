//! Docker, upgraded by nodelet under a running container.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Instant;

use crate::converge::Scene;
use testbed::image::Kind;
use testbed::repository::Repository;
use testbed::{Node, NodeOptions, debian, repackage, slot};

/// Debian's packages, and newer ones that hold the same programs under other numbers.
struct Packages {
    files: Vec<PathBuf>,
    docker: Versions,
    containerd: Versions,
}

struct Versions {
    old: String,
    new: String,
}

/// Made once in a process.
fn packages() -> &'static Packages {
    static PACKAGES: OnceLock<Packages> = OnceLock::new();
    PACKAGES.get_or_init(|| {
        let mut files = debian::download(&Kind::Base.image().unwrap(), &["docker.io"]).unwrap();
        let out = slot().unwrap().dir().join("repackaged");
        let find = |name: &str| {
            let starts = |file: &&PathBuf| file.file_name().unwrap().to_string_lossy().starts_with(&format!("{name}_"));
            files.iter().find(starts).unwrap().clone()
        };
        // `20.10.24+dfsg1` becomes `20.10.24+dfsg2`, also in the program itself.
        let (docker, containerd) = (find("docker.io"), find("containerd"));
        let old = repackage::version(&docker).unwrap();
        let upstream = upstream(&old).to_owned();
        let next = format!("{}2", upstream.strip_suffix('1').expect("a version that ends with 1"));
        let new = format!("{next}-1");
        let edit =
            |tree: &std::path::Path| repackage::replace_version(&tree.join("usr/sbin/dockerd"), &upstream, &next);
        let newer = repackage::as_version(&docker, &new, &out, edit).unwrap();
        let docker = Versions { old, new };
        let old = repackage::version(&containerd).unwrap();
        let new = format!("{old}+newer1");
        let newer_containerd = repackage::as_version(&containerd, &new, &out, |_| Ok(())).unwrap();
        files.extend([newer, newer_containerd]);
        Packages { files, docker, containerd: Versions { old, new } }
    })
}

/// A version without the epoch and Debian's revision: what the program itself says.
fn upstream(version: &str) -> &str {
    let version = version.split_once(':').map_or(version, |(_, rest)| rest);
    version.rsplit_once('-').map_or(version, |(upstream, _)| upstream)
}

/// Debian's package leaves the old daemon running.
const RESTART: &str = "restart = [\"docker.service\"]";

/// A node on which docker can run containers, with a repository of both versions.
fn scene(name: &str) -> Scene {
    let mut repository = Repository::new("dummies", slot().unwrap().dir().join(format!("repository-{name}"))).unwrap();
    repository.publish_files(&packages().files).unwrap();
    // The image for its control groups: docker must be able to make some.
    Scene::with(NodeOptions::new(name, Kind::Kube).bind("/bin/busybox", "/srv/busybox"), repository)
}

/// Nodes have no registry, no networks for containers, and an overlay as their disk.
fn daemon_json(live_restore: bool) -> String {
    format!(r#"{{"live-restore": {live_restore}, "storage-driver": "vfs", "bridge": "none", "iptables": false}}"#)
}

impl Scene {
    /// A state with docker and containerd in these versions, and more.
    fn docker(&self, docker: &str, containerd: &str, live_restore: bool, more: &str) -> String {
        let (source, json) = (self.source(), daemon_json(live_restore));
        format!(
            r#"{source}
[[packages]]
name = "containerd"
version = "{containerd}"
[[packages]]
name = "docker.io"
version = "{docker}"
{more}
[[files]]
path = "/etc/docker/daemon.json"
content = '{json}'
reload = ["docker.service"]
[[units]]
name = "docker.service"
enabled = true
running = true
"#
        )
    }

    /// A node with docker in the old version, and a container that runs.
    fn with_container(name: &str, live_restore: bool) -> Self {
        let start = Instant::now();
        let scene = scene(name);
        // In place before docker starts for the first time: the storage driver can't be changed by a reload.
        scene.node.write_file("/etc/docker/daemon.json", daemon_json(live_restore), 0o644).unwrap();
        let Packages { docker, containerd, .. } = packages();
        scene.hand_over(&scene.docker(&docker.old, &containerd.old, live_restore, ""));
        scene.wait_for_phase("Converged", None);
        assert_eq!(Docker::seen(&scene.node).version, upstream(&docker.old));
        scene
            .node
            .run_sh(
                "mkdir -p /root/fs/bin; cp /srv/busybox /root/fs/bin/; tar -C /root/fs -c . | docker import - box
                 docker run -d --name survivor --network none box \
                     /bin/busybox sh -c 'echo $$ >> /starts; exec /bin/busybox sleep 100000'",
            )
            .unwrap();
        println!("docker with a container after {:.1} s", start.elapsed().as_secs_f32());
        scene
    }
}

/// The daemon, as it says of itself.
#[derive(Debug, PartialEq, Eq)]
struct Docker {
    version: String,
    pid: String,
    live_restore: String,
}

impl Docker {
    fn seen(node: &Node) -> Self {
        Self {
            version: node.run(&["docker", "version", "-f", "{{.Server.Version}}"]).unwrap(),
            pid: node.run(&["systemctl", "show", "-P", "MainPID", "docker.service"]).unwrap(),
            live_restore: node.run(&["docker", "info", "-f", "{{.LiveRestoreEnabled}}"]).unwrap(),
        }
    }
}

/// The container: its id, its start, its process with that one's start, and how often its command began.
fn container(node: &Node) -> String {
    node.run_sh(
        "docker inspect -f '{{.Id}} {{.State.Status}} {{.State.StartedAt}} {{.State.Pid}} {{.RestartCount}}' survivor
         sed 's/.*) //' /proc/$(docker inspect -f '{{.State.Pid}}' survivor)/stat | cut -d' ' -f20
         docker exec survivor /bin/busybox cat /starts
         docker exec survivor /bin/busybox ps -o pid,args | grep 'sleep 1000[0]0'",
    )
    .unwrap()
}

#[test]
fn a_container_survives_an_upgrade_of_docker() {
    let scene = Scene::with_container("docker-upgrade", true);
    let node = &scene.node;
    let Packages { docker, containerd, .. } = packages();
    let (before, container_before) = (Docker::seen(node), container(node));
    assert_eq!(before.live_restore, "true");
    let containerd_pid = || node.run(&["systemctl", "show", "-P", "MainPID", "containerd.service"]).unwrap();
    let runtime_before = containerd_pid();

    let start = Instant::now();
    scene.hand_over(&scene.docker(&docker.new, &containerd.new, true, RESTART));
    let upgraded = format!("dpkg-query -W -f '${{Version}}' docker.io | grep -qxF '{}' && nodelet status", docker.new);
    node.wait_for("the upgrade", std::time::Duration::from_secs(120), &upgraded).unwrap();
    println!("the upgrade took {:.1} s", start.elapsed().as_secs_f32());

    let after = Docker::seen(node);
    assert_eq!(after.version, upstream(&docker.new));
    assert_ne!(after.pid, before.pid, "dockerd did not restart");
    assert_ne!(containerd_pid(), runtime_before, "containerd did not restart");
    assert_eq!(scene.installed("containerd"), containerd.new);
    assert_eq!(container(node), container_before);
    // It is still docker's: it can be stopped, and not only looked at.
    node.run(&["docker", "kill", "survivor"]).unwrap();
}

#[test]
fn live_restore_is_turned_on_before_docker_is_upgraded() {
    let scene = Scene::with_container("docker-guard", false);
    let node = &scene.node;
    let Packages { docker, containerd, .. } = packages();
    let (before, container_before) = (Docker::seen(node), container(node));
    assert_eq!(before.live_restore, "false");
    node.run_sh("systemctl stop nodelet").unwrap();

    // A state that leaves it off is refused, and nothing changes.
    scene.hand_over(&scene.docker(&docker.new, &containerd.old, false, ""));
    let refused = node.exec(&["nodelet", "apply"]).unwrap();
    assert!(!refused.success(), "{}", refused.text());
    for word in ["docker", "live-restore", "daemon.json"] {
        assert!(refused.stderr.contains(word), "no {word:?} in:\n{}", refused.stderr);
    }
    assert_eq!(scene.installed("docker.io"), docker.old);
    assert_eq!((Docker::seen(node), container(node)), (before, container_before.clone()));

    // One that turns it on and upgrades at once does the one before the other.
    scene.hand_over(&scene.docker(&docker.new, &containerd.old, true, RESTART));
    node.run(&["nodelet", "apply"]).unwrap();
    assert_eq!(scene.installed("docker.io"), docker.new);
    let after = Docker::seen(node);
    assert_eq!((after.version.as_str(), after.live_restore.as_str()), (upstream(&docker.new), "true"));
    assert_eq!(container(node), container_before);

    // Who says that docker's change drains the node may do without.
    scene.hand_over(&scene.docker(&docker.old, &containerd.old, false, "allowDowngrade = true\nonChange = \"Drain\""));
    node.run(&["nodelet", "apply"]).unwrap();
    assert_eq!(scene.installed("docker.io"), docker.old);
}
