//! nodelet converging real nodes, with apt and with dnf.

use std::time::Duration;

use testbed::image::Kind;
use testbed::repository::Repository;
use testbed::{Node, NodeOptions, dummy, nodelet, slot};

const SOON: Duration = Duration::from_secs(60);

/// A node with nodelet, and a repository of dummies that it does not know of yet.
pub(crate) struct Scene {
    pub(crate) node: Node,
    pub(crate) repository: Repository,
}

impl Scene {
    pub(crate) fn new(name: &str, image: Kind) -> Self {
        let directory = slot().unwrap().dir().join(format!("repository-{name}"));
        let mut repository = Repository::new("dummies", directory).unwrap();
        let clocks = ["1.0", "2.0"].map(|version| dummy::service("clock", version));
        repository.publish(&clocks).unwrap();
        repository.publish(&[dummy::plain("extra", "1.0"), dummy::failing("broken", "1.0")]).unwrap();
        Self::with(NodeOptions::new(name, image), repository)
    }

    /// The same with a repository of one's own.
    pub(crate) fn with(options: NodeOptions, repository: Repository) -> Self {
        let image = options.image;
        let node = nodelet::node(options.bind(repository.dir(), repository.bound_at())).unwrap();
        node.write_file("/etc/nodelet/keys/dummies.asc", repository.public_key().unwrap(), 0o644).unwrap();
        if image == Kind::Rpm {
            // These nodes are Debian inside, so both are there.
            node.write_file("/etc/nodelet/nodelet.toml.d/dnf.toml", "[packages]\nmanager = \"dnf\"\n", 0o600).unwrap();
        }
        nodelet::install(&node, None).unwrap();
        Self { node, repository }
    }

    /// The repository, as a state names it.
    pub(crate) fn source(&self) -> String {
        let base = format!("file://{}", self.repository.bound_at());
        format!(
            r#"
[[repositories]]
name = "dummies"
[repositories.apt]
uris = ["{base}/apt"]
suites = ["stable"]
components = ["main"]
key = {{ file = "/etc/nodelet/keys/dummies.asc" }}
[repositories.dnf]
baseurl = ["{base}/dnf"]
key = {{ file = "/etc/nodelet/keys/dummies.asc" }}
"#
        )
    }

    /// A state with the repository, the clock in a version, and more.
    pub(crate) fn state(&self, version: &str, more: &str) -> String {
        let source = self.source();
        format!(
            r#"{source}
[[packages]]
name = "clock"
version = "{version}"
allowDowngrade = true

[[files]]
path = "/etc/clock/wörld.conf"
mode = "0640"
content = "version = {version}, node = ${{node.name}}\n"
restart = ["clock.service"]

[[units]]
name = "clock.service"
enabled = true
running = true
[[units.dropins]]
name = "10-test.conf"
content = "[Service]\nEnvironment=NODE=${{node.name}}\n"

[kernel]
sysctl = {{ "net.ipv4.ip_forward" = "1" }}
{more}
"#
        )
    }

    pub(crate) fn hand_over(&self, state: &str) {
        self.node.write_file("/etc/nodelet/state.toml", state, 0o600).unwrap();
    }

    /// What the daemon says of itself.
    pub(crate) fn status(&self) -> serde_json::Value {
        let output = self.node.exec(&["nodelet", "status", "--output", "json"]).unwrap();
        serde_json::from_str(&output.stdout).unwrap_or_else(|_| panic!("{}", output.text()))
    }

    pub(crate) fn wait_for_phase(&self, phase: &str, revision_not: Option<&str>) -> String {
        let what = format!("the phase {phase}");
        let script = format!(
            "nodelet status -o json >/tmp/status; grep -q '\"phase\": \"{phase}\"' /tmp/status && \
             ! grep -qF '\"revision\": \"{}\"' /tmp/status",
            revision_not.unwrap_or("none")
        );
        let waited = self.node.wait_for(&what, SOON, &format!("{{ {script}; }} || {{ cat /tmp/status; exit 1; }}"));
        waited.unwrap_or_else(|error| panic!("{error:#}\n{}", self.node.journal("nodelet").unwrap()));
        self.status()["revision"].as_str().unwrap_or_default().to_owned()
    }

    pub(crate) fn installed(&self, name: &str) -> String {
        let query = format!(
            "case $(dpkg-query -W -f '${{db:Status-Status}}' {name} 2>/dev/null) in ''|not-installed|config-files) ;; \
             *) dpkg-query -W -f '${{Version}}' {name}; exit;; esac; \
             if rpm -q {name} >/dev/null 2>&1; then rpm -q --qf '%{{VERSION}}' {name}; fi"
        );
        self.node.run_sh(&query).unwrap()
    }

    pub(crate) fn starts(&self) -> Vec<String> {
        self.node.read_file("/var/log/clock.starts").unwrap().lines().map(str::to_owned).collect()
    }
}

fn converges_and_follows(name: &str, image: Kind) {
    let scene = Scene::new(name, image);
    let node = &scene.node;
    scene.hand_over(&scene.state("1.0", ""));
    let first = scene.wait_for_phase("Converged", None);
    assert_eq!(scene.installed("clock"), "1.0");
    let file = node.read_file("/etc/clock/wörld.conf").unwrap();
    assert_eq!(file, format!("version = 1.0, node = {name}"));
    assert_eq!(node.run(&["stat", "-c", "%a %U:%G", "/etc/clock/wörld.conf"]).unwrap(), "640 root:root");
    assert_eq!(node.run(&["cat", "/proc/sys/net/ipv4/ip_forward"]).unwrap(), "1");
    assert_eq!(node.run(&["systemctl", "is-enabled", "clock.service"]).unwrap(), "enabled");
    assert_eq!(node.unit_state("clock.service").unwrap(), "active");
    let environment = node.run(&["systemctl", "show", "-P", "Environment", "clock.service"]).unwrap();
    assert_eq!(environment, format!("NODE={name}"));

    // Nothing is left to do, and nothing is done.
    let starts = scene.starts();
    assert_eq!(node.exec(&["nodelet", "plan"]).unwrap().code(), 0);
    let applied = node.run(&["nodelet", "apply"]).unwrap();
    assert!(applied.contains("Nothing to do"), "{applied}");
    assert_eq!(scene.starts(), starts);

    // The plan says what a new state would change, and changes nothing.
    node.write_file("/root/next.toml", scene.state("2.0", "[[packages]]\nname = \"extra\"\n"), 0o600).unwrap();
    let plan = node.exec(&["nodelet", "plan", "/root/next.toml"]).unwrap();
    assert_eq!(plan.code(), 2, "{}", plan.text());
    for line in
        ["change clock 1.0", "install extra", "-version = 1.0", "+version = 2.0", "restart clock.service [Restart]"]
    {
        assert!(plan.stdout.contains(line), "no {line:?} in:\n{}", plan.stdout);
    }
    assert_eq!(scene.installed("extra"), "");

    // Handed over, it is followed.
    scene.hand_over(&scene.state("2.0", "[[packages]]\nname = \"extra\"\n"));
    let second = scene.wait_for_phase("Converged", Some(&first));
    assert_eq!((scene.installed("clock").as_str(), scene.installed("extra").as_str()), ("2.0", "1.0"));
    assert_eq!(scene.starts().last().map(String::as_str), Some("2.0"));

    // Back again: the version goes down, and what left the state goes away.
    node.run(&["nodelet", "rollback"]).unwrap();
    assert_eq!((scene.installed("clock").as_str(), scene.installed("extra").as_str()), ("1.0", ""));
    assert!(node.read_file("/etc/clock/wörld.conf").unwrap().starts_with("version = 1.0"));
    node.run_sh("systemctl restart nodelet").unwrap();
    scene.wait_for_phase("Converged", Some(&second));
    assert_eq!(scene.installed("clock"), "1.0", "the daemon went on to what was rolled back");
    let history = node.run(&["nodelet", "history"]).unwrap();
    assert_eq!(history.lines().count(), 4, "{history}");

    // What nodelet placed leaves with the state; what it found stays.
    scene.hand_over("[[files]]\npath = \"/etc/other.conf\"\ncontent = \"x\"\n");
    scene.wait_for_phase("Converged", Some(&first));
    assert_eq!(scene.installed("clock"), "");
    for path in
        ["/etc/clock/wörld.conf", "/etc/systemd/system/clock.service.d/10-test.conf", "/etc/sysctl.d/90-nodelet.conf"]
    {
        assert!(!node.exists(path).unwrap(), "{path} is still there");
    }
    assert!(node.exists("/etc/nodelet/keys/dummies.asc").unwrap(), "it is not nodelet's");
}

#[test]
fn with_apt() {
    converges_and_follows("apt-converge", Kind::Base);
}

#[test]
fn with_dnf() {
    converges_and_follows("dnf-converge", Kind::Rpm);
}

#[test]
fn an_invalid_state_changes_nothing_and_is_taken_up_when_mended() {
    let scene = Scene::new("invalid", Kind::Base);
    let good = scene.state("1.0", "");
    scene.hand_over(&good.replace("enabled = true", "enabeld = true"));
    scene.wait_for_phase("Invalid", None);
    let status = scene.node.run_sh("systemctl status nodelet").unwrap();
    assert!(status.contains("units[0].enabeld: there is no field `enabeld`: did you mean `enabled`?"), "{status}");
    assert_eq!(scene.installed("clock"), "");
    assert_eq!(scene.node.exec(&["nodelet", "plan"]).unwrap().code(), 78);
    scene.hand_over(&good);
    scene.wait_for_phase("Converged", None);
    assert_eq!(scene.installed("clock"), "1.0");
}

/// A step that fails undoes the steps before it.
fn undoes(name: &str, image: Kind) {
    let scene = Scene::new(name, image);
    let node = &scene.node;
    node.write_file("/etc/before.conf", "before\n", 0o600).unwrap();
    scene.hand_over(&scene.state("1.0", ""));
    let first = scene.wait_for_phase("Converged", None);
    let starts = scene.starts();

    let bad_unit = "[[files]]\npath = \"/etc/before.conf\"\ncontent = \"after\"\n\
                    [[units]]\nname = \"bad.service\"\nrunning = true\ncontent = \"\"\"\n[Service]\nType=oneshot\nExecStart=/bin/false\n\"\"\"\n";
    scene.hand_over(&scene.state("2.0", bad_unit));
    scene.wait_for_phase("Failed", None);
    let status = scene.status();
    let message = status["lastError"]["message"].as_str().unwrap().to_owned();
    assert!(
        message.contains("starting bad.service ended as `failed`") && message.ends_with("everything was undone"),
        "{message}"
    );
    assert_eq!(scene.installed("clock"), "1.0");
    assert_eq!(node.read_file("/etc/before.conf").unwrap(), "before");
    assert_eq!(node.run(&["stat", "-c", "%a", "/etc/before.conf"]).unwrap(), "600");
    assert!(!node.exists("/etc/systemd/system/bad.service").unwrap());
    assert!(node.read_file("/etc/clock/wörld.conf").unwrap().starts_with("version = 1.0"));
    assert_eq!(node.unit_state("clock.service").unwrap(), "active");
    // With apt it was never restarted: what fails came before its turn, and its package was kept from doing it.
    let expected = if image == Kind::Rpm { starts.len() + 1 } else { starts.len() };
    assert!(scene.starts().len() >= expected && scene.starts().last() == starts.last(), "{:?}", scene.starts());

    // The same with a package whose own script fails.
    let bad_package = "[[packages]]\nname = \"broken\"\n";
    scene.hand_over(&scene.state("2.0", bad_package));
    node.wait_for("the other failure", SOON, "nodelet history | grep -q 'undone.*broken'").unwrap();
    scene.wait_for_phase("Failed", None);
    assert_eq!((scene.installed("clock").as_str(), scene.installed("broken").as_str()), ("1.0", ""));

    scene.hand_over(&scene.state("1.0", ""));
    assert_eq!(scene.wait_for_phase("Converged", None), first);
    node.run_sh("! command -v dpkg || test -z \"$(dpkg --audit)\"").unwrap();
}

#[test]
fn a_failed_step_is_undone_with_apt() {
    undoes("apt-undo", Kind::Base);
}

#[test]
fn a_failed_step_is_undone_with_dnf() {
    undoes("dnf-undo", Kind::Rpm);
}

/// How often each kind of drift is tried: one that the machine held up must not count.
const TRIES: usize = 5;
/// How soon files and units are back.
const AT_ONCE: u64 = 100;

/// Changes something and waits until it is put back, several times. It must be soon, beyond what seeing it
/// costs here and now: two looks, one of which began too early, as slow as the slowest at a node that is as wanted.
fn repaired_at_once(node: &Node, what: &str, change: &str, repaired: &str) {
    // The time is measured in the node, from the change on.
    let script = format!(
        "now() {{ echo $(($(date +%s%N) / 1000000)); }}
         for i in $(seq {TRIES}); do
             until nodelet status && nodelet plan; do :; done >/dev/null
             start=$(now); {repaired}; echo look $(($(now) - start))
             {change}; start=$(now); until {repaired}; do :; done 2>/dev/null; echo repair $(($(now) - start))
         done
         until nodelet status && nodelet plan; do :; done >/dev/null"
    );
    let done = node.exec_with(&["timeout", "60", "sh", "-c", &script], None, SOON).unwrap();
    assert!(done.success(), "{what} was not repaired: {}\n{}", done.text(), node.journal("nodelet").unwrap());
    let times = |kind: &str| -> Vec<u64> {
        let found = done.stdout.lines().filter_map(|line| line.strip_prefix(kind)?.trim().parse().ok());
        let mut found: Vec<u64> = found.collect();
        found.sort_unstable();
        found
    };
    let (looks, repairs) = (times("look"), times("repair"));
    // The second best: `make bench` measures, on a quiet machine. Here other nodes take the processors in between.
    let (overhead, soon) = (2 * looks[TRIES - 1], repairs[1]);
    println!("{what} was repaired after {repairs:?} ms, {overhead} ms to see it");
    assert!(soon < AT_ONCE + overhead, "{what} was repaired after {repairs:?} ms, and {overhead} ms to see it");
}

/// Drift of every kind is put back as it happens; what is only to be reported is left alone.
fn repairs(name: &str, image: Kind) {
    let scene = Scene::new(name, image);
    let node = &scene.node;
    node.write_file("/etc/nodelet/nodelet.toml.d/many.toml", "[check]\nrepairsPerHour = 1000\n", 0o600).unwrap();
    node.run_sh("systemctl reload nodelet").unwrap();
    let reported = "[[files]]\npath = \"/etc/reported.conf\"\ncontent = \"wanted\\n\"\ndrift = \"Report\"\n";
    scene.hand_over(&scene.state("1.0", reported));
    scene.wait_for_phase("Converged", None);

    // Each change with the condition that it is undone.
    let changes = [
        ("an edited file", "echo x > /etc/clock/wörld.conf", "grep -q 'version = 1.0' /etc/clock/wörld.conf"),
        ("a mode", "chmod 0666 /etc/clock/wörld.conf", "test \"$(stat -c %a /etc/clock/wörld.conf)\" = 640"),
        ("a removed file", "rm /etc/clock/wörld.conf", "test -e /etc/clock/wörld.conf"),
        ("a removed directory", "rm -r /etc/clock", "test -e /etc/clock/wörld.conf"),
        ("a stopped unit", "systemctl stop clock", "systemctl -q is-active clock"),
        ("a disabled unit", "systemctl -q disable clock", "systemctl -q is-enabled clock"),
        (
            "a removed drop-in",
            "rm -r /etc/systemd/system/clock.service.d",
            "test -e /etc/systemd/system/clock.service.d/10-test.conf",
        ),
    ];
    for (what, change, repaired) in changes {
        repaired_at_once(node, what, change, repaired);
    }

    // A package that apt would take away with its next `autoremove`.
    if image == Kind::Base {
        node.run(&["apt-mark", "auto", "clock"]).unwrap();
        let kept = "test -z \"$(apt-mark showauto clock)\" && nodelet status && nodelet plan";
        node.wait_for("the package to be marked as wanted", SOON, kept).unwrap();
    }

    // A repository that somebody removed; its lists are read again, which takes as long as it takes.
    let definition = match image {
        Kind::Rpm => "/etc/yum.repos.d/dummies.repo",
        _ => "/etc/apt/sources.list.d/dummies.sources",
    };
    node.run(&["rm", definition]).unwrap();
    node.wait_for("the repository", SOON, &format!("test -e {definition} && nodelet status && nodelet plan")).unwrap();

    // A package that an administrator, or unattended-upgrades, changed.
    let (remove, upgrade) = match image {
        Kind::Rpm => ("dnf -y remove clock", "dnf -y upgrade clock"),
        _ => ("apt-get remove -y clock", "apt-get install -y clock"),
    };
    for change in [remove, upgrade] {
        node.run_sh(change).unwrap();
        let back = "nodelet status && nodelet plan && systemctl -q is-active clock";
        node.wait_for(&format!("the undoing of {change}"), SOON, back).unwrap();
        assert_eq!(scene.installed("clock"), "1.0", "after {change}");
    }

    node.write_file("/etc/reported.conf", "changed\n", 0o644).unwrap();
    scene.wait_for_phase("Drifted", None);
    assert_eq!(node.read_file("/etc/reported.conf").unwrap(), "changed");
    let status = scene.status();
    assert_eq!(status["drifted"][0]["resource"], "file /etc/reported.conf", "{status}");
    node.write_file("/etc/reported.conf", "wanted\n", 0o644).unwrap();
    scene.wait_for_phase("Converged", None);
}

/// A held package is nobody's to change but nodelet's, and stays held when nodelet changes it.
fn holds(name: &str, image: Kind) {
    let scene = Scene::new(name, image);
    let held = |version: &str| {
        scene.state(version, "").replacen("allowDowngrade = true", "allowDowngrade = true\nhold = true", 1)
    };
    let list = match image {
        Kind::Rpm => "dnf -q versionlock list",
        _ => "apt-mark showhold",
    };
    let mut revision = None;
    for version in ["1.0", "2.0", "1.0"] {
        scene.hand_over(&held(version));
        revision = Some(scene.wait_for_phase("Converged", revision.as_deref()));
        assert_eq!(scene.installed("clock"), version);
        let locks = scene.node.run_sh(list).unwrap();
        let exact = if image == Kind::Rpm { format!("clock-0:{version}-1") } else { "clock".to_owned() };
        assert!(locks.contains(&exact), "{version}: {locks}");
    }
    scene.hand_over(&scene.state("1.0", ""));
    scene.wait_for_phase("Converged", revision.as_deref());
    assert_eq!(scene.node.run_sh(list).unwrap(), "");
}

#[test]
fn a_held_package_stays_held_with_apt() {
    holds("apt-hold", Kind::Base);
}

#[test]
fn a_held_package_stays_held_with_dnf() {
    holds("dnf-hold", Kind::Rpm);
}

#[test]
fn drift_is_repaired_with_apt() {
    repairs("apt-drift", Kind::Base);
}

#[test]
fn drift_is_repaired_with_dnf() {
    repairs("dnf-drift", Kind::Rpm);
}

#[test]
fn two_tools_do_not_fight_for_ever() {
    let scene = Scene::new("fight", Kind::Base);
    let node = &scene.node;
    node.write_file("/etc/nodelet/nodelet.toml.d/few.toml", "[check]\nrepairsPerHour = 3\n", 0o600).unwrap();
    node.run_sh("systemctl reload nodelet").unwrap();
    scene.hand_over("[[files]]\npath = \"/etc/contested\"\ncontent = \"nodelet\\n\"\n");
    scene.wait_for_phase("Converged", None);
    let other = "for i in 1 2 3; do echo other > /etc/contested; until grep -q nodelet /etc/contested; do sleep 0.01; done; done";
    node.run(&["timeout", "20", "sh", "-c", other]).unwrap();
    node.write_file("/etc/contested", "other\n", 0o644).unwrap();
    scene.wait_for_phase("Drifted", None);
    assert_eq!(node.read_file("/etc/contested").unwrap(), "other");
    let status = node.run_sh("systemctl status nodelet").unwrap();
    assert!(status.contains("Drifted, and left alone: file /etc/contested"), "{status}");
}

/// A converged daemon does nothing at all until something happens.
fn idles(name: &str, image: Kind) {
    let scene = Scene::new(name, image);
    scene.hand_over(&scene.state("1.0", ""));
    scene.wait_for_phase("Converged", None);
    let node = &scene.node;
    // Its own last writes may still bring one more look.
    node.wait_for(
        "the daemon to be idle",
        SOON,
        "nodelet plan >/dev/null && ! pgrep -P $(systemctl show -P MainPID nodelet)",
    )
    .unwrap();
    // Processor time in hundredths of a second, its own and its children's; switches; resident memory in KiB.
    let usage = || -> Vec<u64> {
        let script = "p=$(systemctl show -P MainPID nodelet); set -- $(sed 's/.*) //' /proc/$p/stat); \
                      echo $(($12 + $13 + $14 + $15)); awk '/^voluntary/ {print $2} /^VmRSS/ {print $2}' /proc/$p/status";
        node.run_sh(script).unwrap().lines().map(|line| line.parse().unwrap()).collect()
    };
    let before = usage();
    std::thread::sleep(Duration::from_secs(5));
    let after = usage();
    println!("idle for 5 s: {before:?} became {after:?} (time, memory, switches)");
    assert!(after[0] - before[0] <= 2, "it used {} hundredths of a second", after[0] - before[0]);
    assert!(after[2] - before[2] <= 5, "it woke up {} times", after[2] - before[2]);
}

#[test]
fn idle_costs_nothing_with_apt() {
    idles("apt-idle", Kind::Base);
}

#[test]
fn idle_costs_nothing_with_dnf() {
    idles("dnf-idle", Kind::Rpm);
}
