//! What can go wrong on a host: each ends with the previous state intact or restored, a clear error that names the
//! resource, and no restart of anything untouched.

use std::time::Duration;

use packaging::key::SigningKey;
use testbed::image::Kind;
use testbed::repository::Repository;

use crate::converge::Scene;

const SOON: Duration = Duration::from_secs(60);

/// A node that has converged to 1.0, whose daemon is stopped: `nodelet apply` tells its result at once.
pub(crate) fn converged(scene: Scene) -> Scene {
    scene.hand_over(&scene.state("1.0", ""));
    scene.wait_for_phase("Converged", None);
    scene.node.run_sh("systemctl stop nodelet").unwrap();
    scene
}

impl Scene {
    /// Hands a state over that must fail, and checks that nothing has changed.
    pub(crate) fn must_fail(&self, what: &str, state: &str, words: &[&str]) {
        let node = &self.node;
        let before = self.fingerprint();
        self.hand_over(state);
        let done = node.exec(&["nodelet", "apply"]).unwrap();
        assert!(!done.success(), "{what} succeeded: {}", done.text());
        for word in words {
            assert!(done.stderr.contains(word), "{what}: no {word:?} in:\n{}", done.stderr);
        }
        let after = self.fingerprint();
        let changed: Vec<&str> = before
            .lines()
            .filter(|line| !after.contains(line))
            .chain(after.lines().filter(|line| !before.contains(line)))
            .collect();
        assert!(before == after, "{what}: something changed: {changed:#?}; it said:\n{}", done.text());
        println!("{what}: {}", done.stderr.lines().next().unwrap_or_default());
    }

    /// What must be the same before and after: versions, files, and when each unit was last started.
    pub(crate) fn fingerprint(&self) -> String {
        self.node
            .run_sh(
                "dpkg-query -W 2>/dev/null | sort; { rpm -qa | grep -v ^gpg-pubkey | sort; } 2>/dev/null; dpkg --audit
                 find /etc/clock /etc/apt/sources.list.d /etc/apt/keyrings /etc/yum.repos.d /etc/systemd/system \
                     -type f -exec stat -c '%n %a %u' {} + -exec sha256sum {} + 2>/dev/null || :
                 systemctl show -P InvocationID clock.service dbus.service systemd-journald.service
                 cat /var/log/clock.starts; systemctl --failed --no-legend",
            )
            .unwrap()
    }
}

fn every_fault(name: &str, image: Kind) {
    let scene = converged(Scene::new(name, image));
    let node = &scene.node;
    let more = |more: &str| scene.state("1.0", more);
    let file = |path: &str| format!("[[files]]\npath = \"{path}\"\ncontent = \"new\"\n");

    scene.must_fail("a version that does not exist", &scene.state("9.9", ""), &["clock", "9.9"]);
    scene.must_fail("a package that does not exist", &more("[[packages]]\nname = \"nowhere\"\n"), &["nowhere"]);

    node.run_sh("mkdir -p /etc/there").unwrap();
    scene.must_fail("a directory in the way", &more(&file("/etc/there")), &["/etc/there is a directory"]);

    node.run_sh("echo old > /etc/fixed; chattr +i /etc/fixed").unwrap();
    let both = file("/etc/alpha") + &file("/etc/fixed");
    scene.must_fail("an immutable file", &more(&both), &["/etc/fixed", "Operation not permitted"]);
    assert!(!node.exists("/etc/alpha").unwrap());
    node.run_sh("chattr -i /etc/fixed").unwrap();

    let exits =
        "[[units]]\nname = \"exits.service\"\nrunning = true\ncontent = \"[Service]\\nExecStart=/bin/false\\n\"\n";
    scene.must_fail("a unit that exits at once", &more(exits), &["exits.service"]);

    let missing = more("").replace("dummies.asc", "missing.asc");
    scene.must_fail("a missing key", &missing, &["missing.asc", "put the file there"]);
    let other = Repository::new("other", node.slot().dir().join(format!("other-{name}"))).unwrap();
    node.write_file("/etc/nodelet/keys/other.asc", other.public_key().unwrap(), 0o644).unwrap();
    if image == Kind::Rpm {
        // dnf trusts the keys that it once took; here it is to see this repository for the first time.
        node.run_sh("rpm -e --allmatches gpg-pubkey; rm -rf /var/cache/dnf").unwrap();
    }
    let wrong = scene.state("2.0", "").replace("keys/dummies.asc", "keys/other.asc");
    let told = if image == Kind::Rpm { "Public key for clock" } else { "dummies" };
    scene.must_fail("a wrong key", &wrong, &[told]);
    let gone = scene.state("2.0", "").replace("file:///srv/dummies", "file:///srv/gone");
    scene.must_fail("a repository that is gone", &gone, &["dummies"]);

    node.run_sh("mount --bind /etc /etc; mount -o remount,bind,ro /etc").unwrap();
    node.run_sh("mount -t tmpfs tmpfs /etc/nodelet; mkdir /etc/nodelet/keys").unwrap();
    node.write_file("/etc/nodelet/keys/dummies.asc", scene.repository.public_key().unwrap(), 0o644).unwrap();
    let settings = if image == Kind::Rpm { "[packages]\nmanager = \"dnf\"\n" } else { "" };
    node.write_file("/etc/nodelet/nodelet.toml", settings, 0o600).unwrap();
    scene.must_fail("a read-only /etc", &more(&file("/etc/beta")), &["/etc/beta", "Read-only file system"]);
    node.run_sh("umount /etc/nodelet; umount /etc").unwrap();

    // In the end it converges, as if nothing had been.
    scene.hand_over(&scene.state("2.0", ""));
    node.run(&["nodelet", "apply"]).unwrap();
    assert_eq!(scene.installed("clock"), "2.0");
}

#[test]
fn every_fault_with_apt() {
    every_fault("apt-faults", Kind::Base);
}

#[test]
fn every_fault_with_dnf() {
    every_fault("dnf-faults", Kind::Rpm);
}

/// A key that has expired is named with the day, before anything is tried with it.
fn expired_key(name: &str, image: Kind) {
    let scene = converged(Scene::new(name, image));
    let (made, month) = (1_704_067_200, Duration::from_secs(30 * 24 * 3600));
    let key = SigningKey::generate("old <old@example.org>", made, Some(month)).unwrap();
    let mut old = Repository::with_key("old", scene.repository.dir().join("old"), key).unwrap();
    old.publish(&[testbed::dummy::plain("late", "1.0")]).unwrap();
    scene.node.write_file("/etc/nodelet/keys/old.asc", old.public_key().unwrap(), 0o644).unwrap();
    let source = scene.source().replace("\"dummies\"", "\"old\"").replace("dummies.asc", "old.asc");
    let source = source.replace("/srv/dummies/", "/srv/dummies/old/");
    let state = scene.state("2.0", &format!("{source}[[packages]]\nname = \"late\"\n"));
    scene.must_fail("an expired key", &state, &["old.asc", "expired", "2024-01-31"]);
}

#[test]
fn an_expired_key_with_apt() {
    expired_key("apt-expired", Kind::Base);
}

#[test]
fn an_expired_key_with_dnf() {
    expired_key("dnf-expired", Kind::Rpm);
}

#[test]
fn a_unit_that_does_not_exist() {
    let scene = converged(Scene::new("no-unit", Kind::Base));
    for wanted in ["running = true", "enabled = true"] {
        scene.hand_over(&scene.state("2.0", &format!("[[units]]\nname = \"nowhere.service\"\n{wanted}\n")));
        let done = scene.node.exec(&["nodelet", "apply"]).unwrap();
        println!("{wanted}: {}", done.stderr);
        assert!(!done.success() && done.stderr.contains("nowhere.service"), "{}", done.text());
        assert!(!done.stderr.contains("a person must look"), "{}", done.stderr);
        assert_eq!(scene.installed("clock"), "1.0");
    }
}

/// systemd ends a unit that does not stop; nodelet waits for that, and disturbs nobody else.
#[test]
fn a_unit_whose_stop_hangs() {
    let scene = converged(Scene::new("hanging-stop", Kind::Base));
    let node = &scene.node;
    let starts = scene.starts();
    let unit = |content: &str, running: bool| {
        scene.state(
            "1.0",
            &format!(
                "[[units]]\nname = \"stubborn.service\"\nrunning = {running}\ncontent = \"\"\"\n[Service]\n\
                 TimeoutStopSec=2\nExecStart=/bin/sh -c \"trap '' TERM; exec sleep infinity\"\n\"\"\"\n\
                 [[files]]\npath = \"/etc/stubborn.conf\"\ncontent = \"{content}\"\nrestart = [\"stubborn.service\"]\n"
            ),
        )
    };
    let apply = |state: &str| {
        scene.hand_over(state);
        let start = std::time::Instant::now();
        node.run(&["nodelet", "apply"]).unwrap();
        assert_eq!(node.exec(&["nodelet", "plan"]).unwrap().code(), 0);
        start.elapsed()
    };
    let invocation = || node.run(&["systemctl", "show", "-P", "InvocationID", "stubborn.service"]).unwrap();
    apply(&unit("one", true));
    let first = invocation();

    let took = apply(&unit("two", true));
    assert!(took >= Duration::from_secs(2), "it did not wait: {took:?}");
    assert_ne!(invocation(), first);
    assert_eq!(node.unit_state("stubborn.service").unwrap(), "active");

    let took = apply(&unit("two", false));
    assert!(took >= Duration::from_secs(2), "it did not wait: {took:?}");
    assert_ne!(node.unit_state("stubborn.service").unwrap(), "active");

    // Gone with its file, while it runs.
    apply(&unit("two", true));
    apply(&scene.state("1.0", ""));
    assert!(!node.exists("/etc/systemd/system/stubborn.service").unwrap());
    assert_eq!(node.sh("pgrep -fx 'sleep infinity' | wc -l").unwrap().stdout, "1", "only the clock's is left");
    assert_eq!(scene.starts(), starts);
}

/// A lock that somebody else holds is waited for, visibly.
#[test]
fn a_held_lock_is_waited_for() {
    let scene = Scene::new("lock", Kind::Base);
    let node = &scene.node;
    scene.hand_over(&scene.state("1.0", ""));
    scene.wait_for_phase("Converged", None);
    node.write_file(
        "/root/hold.py",
        "import fcntl, time\nfile = open('/var/lib/dpkg/lock-frontend', 'w')\nfcntl.lockf(file, fcntl.LOCK_EX)\n\
         open('/run/held', 'w').close()\ntime.sleep(600)\n",
        0o644,
    )
    .unwrap();
    let python = node.exec(&["which", "python3"]).unwrap().success();
    // Without Python, perl-base, which every Debian has, does the same.
    let hold = if python {
        "systemd-run --unit=holder python3 /root/hold.py"
    } else {
        "systemd-run --unit=holder perl -e 'use Fcntl; open(my $f, \">\", \"/var/lib/dpkg/lock-frontend\"); \
         my $l = pack(\"s s l! l! i x![l!]\", F_WRLCK, 0, 0, 0, 0); fcntl($f, F_SETLK, $l) or die; \
         open(my $h, \">\", \"/run/held\"); sleep 600'"
    };
    node.run_sh(hold).unwrap();
    node.wait_for("the lock to be held", SOON, "test -e /run/held").unwrap();
    scene.hand_over(&scene.state("2.0", ""));
    node.wait_for(
        "the wait to be visible",
        SOON,
        "systemctl status nodelet | grep -E 'Status:.*(lock|change clock 1.0 to 2.0)'",
    )
    .unwrap();
    assert_eq!(scene.installed("clock"), "1.0");
    node.run_sh("systemctl stop holder").unwrap();
    node.wait_for(
        "the upgrade after the lock was released",
        SOON,
        "dpkg-query -W -f '${Version}' clock | grep -qx 2.0",
    )
    .unwrap();
    scene.wait_for_phase("Converged", None);
}
