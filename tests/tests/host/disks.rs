//! Disks that are full or read-only: what was there before stays, and the message says which one it is.

use testbed::http::FileServer;
use testbed::image::Kind;
use testbed::repository::Repository;
use testbed::{Node, NodeOptions, dummy, slot};

use crate::converge::Scene;
use crate::faults::converged;

/// What no compression makes smaller.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 88_172_645_463_325_252_u64;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend(state.to_le_bytes());
    }
    bytes
}

/// A converged node, and a repository with a package that needs 8 MB below `/usr/share/bulky`.
fn scene(name: &str, image: Kind) -> Scene {
    let mut repository = Repository::new("dummies", slot().unwrap().dir().join(format!("repository-{name}"))).unwrap();
    let bulky = dummy::plain("bulky", "1.0").file("/usr/share/bulky/blob", 0o644, noise(8 << 20));
    repository.publish(&[dummy::service("clock", "1.0"), dummy::service("clock", "2.0"), bulky]).unwrap();
    converged(Scene::with(NodeOptions::new(name, image).without_syncs(), repository))
}

/// The same state with the newer clock and the large package.
fn with_bulky(scene: &Scene) -> String {
    scene.state("2.0", "[[packages]]\nname = \"bulky\"\n")
}

/// Puts a small filesystem over a directory, with what was in it.
fn shrink(node: &Node, directory: &str, size: &str) {
    node.run_sh(&format!(
        "mkdir -p {directory}; rm -rf /run/kept; cp -a {directory} /run/kept
         mount -t tmpfs -o size={size},mode=$(stat -c %a {directory}) tmpfs {directory}
         cp -a /run/kept/. {directory}/"
    ))
    .unwrap();
}

/// Packages that can't be downloaded, and such that can't be unpacked, with words of the messages.
fn no_room_for_packages(name: &str, image: Kind, downloading: &[&str], unpacking: &[&str]) {
    let scene = scene(name, image);
    let node = &scene.node;
    let server = FileServer::start(node.slot().number().gateway(), scene.repository.dir()).unwrap();
    let far = |state: String| state.replace(&format!("file://{}", scene.repository.bound_at()), &server.url());
    scene.hand_over(&far(scene.state("1.0", "")));
    node.run(&["nodelet", "apply"]).unwrap();
    let cache = if image == Kind::Rpm { "/var/cache/dnf" } else { "/var/cache/nodelet" };
    shrink(node, cache, "5m");
    scene.must_fail("no room for downloads", &far(with_bulky(&scene)), downloading);
    node.run_sh(&format!("umount {cache}")).unwrap();

    // Nobody sees beforehand that one directory of a package is on a small filesystem of its own: it is undone.
    shrink(node, "/usr/share/bulky", "1m");
    let starts = scene.starts();
    scene.hand_over(&far(with_bulky(&scene)));
    let done = node.exec(&["nodelet", "apply"]).unwrap();
    assert!(!done.success(), "{}", done.text());
    println!("no room for files of a package: {}", done.stderr);
    for word in unpacking {
        assert!(done.stderr.contains(word), "no {word:?} in {}", done.stderr);
    }
    assert_eq!((scene.installed("clock").as_str(), scene.installed("bulky").as_str()), ("1.0", ""));
    assert_eq!(node.unit_state("clock.service").unwrap(), "active");
    // Where it was upgraded already, it was restarted on the way there and on the way back.
    let more = scene.starts()[starts.len()..].to_vec();
    assert!(more.is_empty() || more.last().is_some_and(|last| last == "1.0"), "{more:?}");
    assert_eq!(node.run_sh("! command -v dpkg >/dev/null || dpkg --audit").unwrap(), "");

    node.run_sh("umount /usr/share/bulky").unwrap();
    node.run(&["nodelet", "apply"]).unwrap();
    assert_eq!((scene.installed("clock").as_str(), scene.installed("bulky").as_str()), ("2.0", "1.0"));
}

#[test]
fn no_room_for_packages_with_apt() {
    no_room_for_packages("apt-no-room", Kind::Base, &["/var/cache/nodelet", "free"], &["bulky"]);
}

#[test]
fn no_room_for_packages_with_dnf() {
    no_room_for_packages("dnf-no-room", Kind::Rpm, &["bulky"], &["bulky"]);
}

#[test]
fn the_message_tells_which_disk_is_full() {
    let unpacking = ["/usr/share/bulky", "space"];
    no_room_for_packages("apt-no-room-told", Kind::Base, &["/var/cache/nodelet", "free"], &unpacking);
    no_room_for_packages("dnf-no-room-told", Kind::Rpm, &["/var/cache", " free"], &unpacking);
}

#[test]
fn no_room_for_what_is_known_beforehand() {
    let scene = scene("no-room-known", Kind::Base);
    let node = &scene.node;
    let history = node.run(&["nodelet", "history"]).unwrap();
    node.run_sh("mkdir /srv/small; mount -t tmpfs -o size=1m tmpfs /srv/small").unwrap();
    let large = format!("[[files]]\npath = \"/srv/small/large\"\ncontent = \"{}\"\n", "x".repeat(3_000_000));
    scene.must_fail("a large file", &scene.state("2.0", &large), &["/srv/small", " free"]);
    // The package could be downloaded, and there is no room to unpack it.
    node.run_sh(
        "mkdir /run/usr; mount -t tmpfs -o size=3m tmpfs /run/usr; mkdir /run/usr/upper /run/usr/work
         mount -t overlay overlay -o lowerdir=/usr,upperdir=/run/usr/upper,workdir=/run/usr/work /usr",
    )
    .unwrap();
    scene.must_fail("a small /usr", &with_bulky(&scene), &["/usr", " free"]);
    shrink(node, "/var/lib/nodelet", "3m");
    scene.must_fail("small records", &scene.state("2.0", ""), &["/var/lib/nodelet", " free"]);
    // Nothing was even begun.
    assert_eq!(node.run(&["nodelet", "history"]).unwrap(), history);
}

/// A file that does not fit leaves the files before it as they were; so do records that can't be written.
#[test]
fn no_room_for_files_and_read_only_records() {
    let scene = scene("no-room-files", Kind::Base);
    let node = &scene.node;
    node.run_sh("mkdir /srv/small; mount -t tmpfs -o size=1m tmpfs /srv/small; echo old > /srv/small/large").unwrap();
    let first = "[[files]]\npath = \"/etc/first.conf\"\ncontent = \"x\"\n".to_owned();
    let large = format!("[[files]]\npath = \"/srv/small/large\"\ncontent = \"{}\"\n", "x".repeat(3_000_000));
    scene.must_fail("a large file", &scene.state("1.0", &(first + &large)), &["/srv/small"]);
    assert!(!node.exists("/etc/first.conf").unwrap());
    assert_eq!(node.run_sh("ls -A /srv/small; cat /srv/small/large").unwrap(), "large\nold");

    node.run_sh("mount --bind /var/lib/nodelet /var/lib/nodelet; mount -o remount,bind,ro /var/lib/nodelet").unwrap();
    let words = ["/var/lib/nodelet", "Read-only file system"];
    scene.must_fail("read-only records", &scene.state("2.0", ""), &words);
    node.run_sh("umount /var/lib/nodelet").unwrap();
    node.run(&["nodelet", "apply"]).unwrap();
    assert_eq!(scene.installed("clock"), "2.0");
}

#[test]
fn a_plan_is_made_on_a_read_only_disk() {
    let scene = scene("read-only-plan", Kind::Base);
    let node = &scene.node;
    node.run_sh("mount --bind /var/lib/nodelet /var/lib/nodelet; mount -o remount,bind,ro /var/lib/nodelet").unwrap();
    scene.hand_over(&scene.state("2.0", ""));
    let plan = node.exec(&["nodelet", "plan"]).unwrap();
    assert_eq!(plan.code(), 2, "{}", plan.text());
}

/// Wherever the disk becomes full: what can't be written down isn't done.
#[test]
fn no_room_for_records() {
    let scene = scene("no-room-records", Kind::Base);
    let node = &scene.node;
    node.write_file("/etc/kept.conf", noise(9000), 0o644).unwrap();
    shrink(node, "/var/lib/nodelet", "16m");
    let file = "[[files]]\npath = \"/etc/kept.conf\"\ncontent = \"new\"\n";
    for pages in [0, 3, 9] {
        let version = if scene.installed("clock") == "1.0" { "2.0" } else { "1.0" };
        let filling = format!(
            "cd /var/lib/nodelet; head -c 16M /dev/zero > filler 2>/dev/null || :
             truncate -s -$(({pages} * 4096)) filler"
        );
        node.run_sh(&filling).unwrap();
        let before = scene.fingerprint();
        scene.hand_over(&scene.state(version, file));
        let done = node.exec(&["nodelet", "apply"]).unwrap();
        println!("{pages} pages: {}", done.text());
        if done.success() {
            assert_eq!(scene.installed("clock"), version, "{pages} pages");
        } else {
            assert!(done.stderr.contains("/var/lib/nodelet"), "{pages} pages: {}", done.stderr);
            assert!(scene.fingerprint() == before, "{pages} pages: something changed: {}", done.text());
        }
        // With room again, all is well again.
        node.run_sh("rm /var/lib/nodelet/filler").unwrap();
        let done = node.exec(&["nodelet", "apply"]).unwrap();
        assert!(done.success(), "{pages} pages: {}", done.text());
        assert_eq!(scene.installed("clock"), version, "{pages} pages");
    }
}
