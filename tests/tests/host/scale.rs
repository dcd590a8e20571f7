//! States of a size, and with files of a kind, that no example has.

use std::fmt::Write;
use std::time::{Duration, Instant};

use base64::Engine;
use testbed::image::Kind;
use testbed::repository::Repository;
use testbed::{Node, NodeOptions, dummy, slot};

use crate::converge::Scene;

const FILES: usize = 1000;
const PACKAGES: usize = 200;
const UNITS: usize = 100;

/// A state of that size; the files from `changed` on have another content.
fn large(scene: &Scene, changed: usize) -> String {
    let mut state = scene.source();
    for number in 0..PACKAGES {
        let _ = writeln!(state, "[[packages]]\nname = \"speck{number}\"\nversion = \"1.0\"");
    }
    for number in 0..FILES {
        let version = if number < changed { "one" } else { "two" };
        let (directory, name) = (number / 50, number % 50);
        let path = format!("/etc/large/{directory}/{name}.conf");
        let _ = writeln!(state, "[[files]]\npath = \"{path}\"\ncontent = \"{version} {number}\\n\"");
    }
    for number in 0..UNITS {
        let content = "[Service]\\nType=oneshot\\nRemainAfterExit=yes\\nExecStart=/bin/true\\n\
                       [Install]\\nWantedBy=multi-user.target\\n";
        let _ = writeln!(
            state,
            "[[units]]\nname = \"large{number}.service\"\nenabled = true\nrunning = true\ncontent = \"{content}\""
        );
    }
    state
}

/// Applies what was handed over, and says how long that took; the number of steps.
fn apply(node: &Node, what: &str) -> usize {
    let start = Instant::now();
    let said = node.run(&["nodelet", "apply"]).unwrap();
    println!("{what}: {:.1} s", start.elapsed().as_secs_f32());
    let last = said.lines().last().unwrap_or_default();
    if last.contains("Nothing to do") {
        return 0;
    }
    let steps = last.split(" in ").nth(1).and_then(|rest| rest.split(' ').next());
    steps.and_then(|steps| steps.parse().ok()).unwrap_or_else(|| panic!("no number of steps in {last:?}"))
}

fn count(node: &Node, script: &str) -> usize {
    node.run_sh(script).unwrap().trim().parse().unwrap()
}

fn large_state(name: &str, image: Kind) {
    let directory = slot().unwrap().dir().join(format!("repository-{name}"));
    let mut repository = Repository::new("dummies", directory).unwrap();
    let specks: Vec<_> = (0..PACKAGES).map(|number| dummy::plain(&format!("speck{number}"), "1.0")).collect();
    repository.publish(&specks).unwrap();
    let scene = Scene::with(NodeOptions::new(name, image).without_syncs(), repository);
    let node = &scene.node;
    node.run_sh("systemctl stop nodelet").unwrap();
    let (transactions, installed) = if image == Kind::Rpm {
        ("dnf history list | tail -n +3 | wc -l", "rpm -qa 'speck*' | wc -l")
    } else {
        ("grep -c ^Start-Date /var/log/apt/history.log", "dpkg-query -W -f '${Package} ${Version}\n' 'speck*' | wc -l")
    };
    let files = "find /etc/large -type f 2>/dev/null | wc -l";
    let active = "systemctl list-units --no-legend --state=active 'large*.service' | wc -l";
    let enabled = "find /etc/systemd/system/multi-user.target.wants -name 'large*' | wc -l";
    let unit_files = "find /etc/systemd/system -maxdepth 1 -name 'large*' | wc -l";
    let seen = || [files, installed, active, enabled, unit_files].map(|script| count(node, script));
    let before = count(node, transactions);

    scene.hand_over(&large(&scene, FILES));
    apply(node, "from nothing to the large state");
    assert_eq!(seen(), [FILES, PACKAGES, UNITS, UNITS, UNITS]);
    assert_eq!(count(node, transactions), before + 1, "packages come in one transaction");

    assert_eq!(apply(node, "the large state again"), 0);
    scene.hand_over(&large(&scene, FILES - 1));
    assert_eq!(apply(node, "one file of it"), 1);
    assert_eq!(node.read_file("/etc/large/19/49.conf").unwrap(), format!("two {}", FILES - 1));
    assert_eq!(count(node, "grep -rl '^two' /etc/large | wc -l"), 1);
    assert_eq!(count(node, transactions), before + 1);

    // The daemon sees one of a thousand change, and the last of a hundred.
    node.run_sh("systemctl start nodelet").unwrap();
    scene.wait_for_phase("Converged", None);
    let start = Instant::now();
    node.run_sh("rm /etc/large/7/7.conf; systemctl stop large99").unwrap();
    node.wait_for(
        "the repair",
        Duration::from_secs(20),
        "test -e /etc/large/7/7.conf && systemctl -q is-active large99",
    )
    .unwrap();
    println!("repaired: {:.1} s", start.elapsed().as_secs_f32());
    scene.wait_for_phase("Converged", None);
    node.run_sh("systemctl stop nodelet").unwrap();

    scene.hand_over("# Nothing is wanted any more.\n");
    apply(node, "back to nothing");
    assert_eq!(seen(), [0; 5]);
    assert_eq!(count(node, transactions), before + 2, "packages go in one transaction");
}

#[test]
fn a_large_state_with_apt() {
    large_state("apt-large", Kind::Base);
}

#[test]
fn a_large_state_with_dnf() {
    large_state("dnf-large", Kind::Rpm);
}

/// Files that are large, have names in other scripts, belong to many, or may do more than others.
#[test]
fn files_of_every_kind() {
    let scene = Scene::new("files", Kind::Base);
    let node = &scene.node;
    node.run_sh(
        "systemctl stop nodelet
         for n in $(seq 20); do groupadd -g $((3000 + n)) group$n; useradd -u $((4000 + n)) -M -g group$n user$n; done",
    )
    .unwrap();
    let mut state = String::new();
    let mut file = |path: &str, more: &str| {
        let _ = writeln!(state, "[[files]]\npath = \"{path}\"\n{more}");
    };

    // 5 MB each, one of bytes that are no text, one of text in several scripts.
    let bytes: Vec<u8> = (0..5_000_000_u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let text = "Größe, 大きさ, размер\n".repeat(5_000_000 / 35);
    let encoded = base64::engine::general_purpose::STANDARD.encode(&bytes);
    file("/opt/large.bin", &format!("encoding = \"base64\"\ncontent = \"{encoded}\""));
    file("/opt/large.txt", &format!("content = '''\n{text}'''"));

    let names = ["/etc/ordner/größe.conf", "/etc/каталог/файл", "/srv/目录/文件 一.txt", "/srv/emoji-🦀/x"];
    for name in names {
        file(name, "content = \"x\"");
    }
    for number in 1..=20 {
        let owner = format!("owner = \"user{number}\"\ngroup = \"group{}\"", 21 - number);
        file(&format!("/srv/owned/{number}"), &format!("content = \"x\"\n{owner}"));
    }
    let modes = ["4755", "2755", "6711", "1644", "0000", "0400", "0777"];
    for mode in modes {
        file(&format!("/srv/mode/{mode}"), &format!("content = \"x\"\nmode = \"{mode}\"\nowner = \"user1\""));
    }
    // A directory that is a link is followed: /etc/x may well be somewhere else.
    node.run_sh("mkdir -p /data/real; ln -s /data/real /etc/linked; ln -s ../data/missing /etc/dangling").unwrap();
    file("/etc/linked/below/x.conf", "content = \"x\"");

    scene.hand_over(&state);
    let start = Instant::now();
    node.run(&["nodelet", "apply"]).unwrap();
    println!("files of every kind: {:.1} s", start.elapsed().as_secs_f32());
    let sum = |content: &[u8]| {
        let done = node.exec_with(&["sha256sum"], Some(content), Duration::from_secs(20)).unwrap();
        done.stdout.split(' ').next().unwrap().to_owned()
    };
    let sums = node.run_sh("sha256sum /opt/large.bin /opt/large.txt | cut -d' ' -f1").unwrap();
    assert_eq!(sums, format!("{}\n{}", sum(&bytes), sum(text.as_bytes())));
    for name in names {
        assert_eq!(node.run(&["cat", name]).unwrap(), "x", "{name}");
    }
    for number in 1..=20 {
        let owner = node.run(&["stat", "-c", "%U:%G", &format!("/srv/owned/{number}")]).unwrap();
        assert_eq!(owner, format!("user{number}:group{}", 21 - number));
    }
    for mode in modes {
        let is = node.run(&["stat", "-c", "%04a %U", &format!("/srv/mode/{mode}")]).unwrap();
        assert_eq!(is, format!("{mode} user1"));
    }
    assert_eq!(node.run_sh("readlink /etc/linked; cat /data/real/below/x.conf").unwrap(), "/data/real\nx");
    assert_eq!(apply(node, "the same again"), 0);

    scene.hand_over("# Nothing is wanted any more.\n");
    apply(node, "back to nothing");
    let left = "find /opt/large.* /srv/owned /srv/mode /srv/emoji* /srv/目录 /etc/каталог /etc/ordner /data -type f";
    assert_eq!(node.sh(left).unwrap().stdout, "");
    assert_eq!(node.run(&["readlink", "/etc/linked"]).unwrap(), "/data/real");

    // Something that others made: neither the link nor what it leads to is touched.
    node.run_sh("echo precious > /data/precious; ln -s /data/precious /etc/link.conf").unwrap();
    let refused = [
        ("/etc/link.conf", "/etc/link.conf is a symbolic link"),
        ("/etc/dangling", "/etc/dangling is a symbolic link"),
        ("/etc/dangling/x.conf", "/etc/dangling"),
    ];
    for (path, words) in refused {
        scene.hand_over(&format!("[[files]]\npath = \"{path}\"\ncontent = \"x\"\n"));
        let done = node.exec(&["nodelet", "apply"]).unwrap();
        assert!(!done.success() && done.stderr.contains(words), "{path}: {}", done.text());
        println!("{}", done.stderr);
    }
    let links = "readlink /etc/link.conf /etc/dangling; cat /data/precious; test ! -e /data/missing";
    assert_eq!(node.run_sh(links).unwrap(), "/data/precious\n../data/missing\nprecious");
}
