//! The daemon: what a check costs it, and what it costs when nothing happens.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::time::clock_getcpuclockid;
use nix::unistd::Pid;

use super::reference::{FILES_DIR, OLD};
use super::report::Report;
use super::samples::Samples;
use super::{Rounds, say};
use crate::{Node, process};

/// The processor time that a full check may take.
const CHECK: f64 = 0.005;
/// The resident memory that it may have, in megabytes.
const MEMORY: f64 = 12.0;
/// How long it is watched doing nothing. The watchdog wants a sign of life every 60 s, so it wakes up twice as often.
const IDLE: Duration = Duration::from_secs(30);
/// The wake-ups in that time: the watchdog's.
const WAKE_UPS: f64 = 1.0;
/// A daemon that took no processor time for so long has nothing more to do.
const QUIET: Duration = Duration::from_millis(60);
/// What it does in this bench takes milliseconds; this is for a machine that is busy.
const LIMIT: Duration = Duration::from_secs(60);

/// A daemon on a node, seen from the host.
pub(super) struct Daemon<'a> {
    node: &'a Node,
    pid: Pid,
    files: String,
}

impl<'a> Daemon<'a> {
    /// Starts it with a state, and waits until the node is as that wants it and the daemon has nothing more to do.
    /// A resource may be broken and repaired as often as the bench likes.
    pub(super) fn start(node: &'a Node, state: &str) -> Result<Self> {
        let settings = "[check]\nrepairsPerHour = 3600\n";
        node.write_file("/etc/nodelet/nodelet.toml.d/bench.toml", settings, 0o600)?;
        node.write_file("/etc/nodelet/state.toml", state, 0o600)?;
        node.run(&["systemctl", "restart", "nodelet"])?;
        node.wait_for(
            "the daemon to be converged",
            LIMIT,
            "nodelet status -o json | grep -q '\"phase\": \"Converged\"'",
        )?;
        let inner = node.run(&["systemctl", "show", "--property=MainPID", "--value", "nodelet"])?;
        let inner: i32 = inner.trim().parse().with_context(|| format!("the daemon's number is {inner:?}"))?;
        let outer = process::in_node(node.leader()?, inner)?.context("finding the daemon's process on the host")?;
        let files = format!("/proc/{}/root", node.leader()?);
        let daemon = Self { node, pid: Pid::from_raw(outer), files };
        daemon.settle()?;
        Ok(daemon)
    }

    /// Stops it.
    pub(super) fn stop(self) -> Result<()> {
        self.node.run(&["systemctl", "stop", "nodelet"]).map(drop)
    }

    /// A path of the node, as the host reaches it.
    pub(super) fn reach(&self, path: &str) -> String {
        format!("{}{path}", self.files)
    }

    /// Processor time so far, of all its threads.
    fn processor_time(&self) -> Result<Duration> {
        let clock = clock_getcpuclockid(self.pid).context("the daemon is gone")?;
        Ok(clock.now().context("reading the daemon's processor time")?.into())
    }

    /// Whether it says that the node is as wanted. In the middle of a round it may sleep, too.
    fn is_converged(&self) -> bool {
        fs::read_to_string(self.reach("/run/nodelet/status.json")).is_ok_and(|text| text.contains("\"Converged\""))
    }

    /// Waits until it has nothing more to do; the processor time that it has then.
    pub(super) fn settle(&self) -> Result<Duration> {
        let limit = Instant::now() + LIMIT;
        let (mut last, mut since) = (self.processor_time()?, Instant::now());
        while since.elapsed() < QUIET {
            sleep(QUIET / 12);
            let now = self.processor_time()?;
            if now != last || !self.is_converged() {
                (last, since) = (now, Instant::now());
            }
            if Instant::now() > limit {
                bail!("the daemon does not come to rest:\n{}", self.node.journal("nodelet")?);
            }
        }
        Ok(last)
    }

    /// Processor time of full checks, each brought about by a file whose mode is set to what it is.
    pub(super) fn checks(&self, rounds: usize) -> Result<Samples> {
        let path = self.reach(&format!("{FILES_DIR}/file-0001.conf"));
        let mut samples = Samples::default();
        for _ in 0..rounds {
            let before = self.settle()?;
            let mode = fs::metadata(&path).with_context(|| format!("looking at {path}"))?.permissions();
            fs::set_permissions(&path, mode).with_context(|| format!("touching {path}"))?;
            samples.push(self.after(before)?.saturating_sub(before).as_secs_f64());
        }
        Ok(samples)
    }

    /// The same for `systemctl reload`, which also reads the configuration, connects and watches anew.
    fn reloads(&self, rounds: usize) -> Result<Samples> {
        let mut samples = Samples::default();
        for _ in 0..rounds {
            let before = self.settle()?;
            self.node.run(&["systemctl", "reload", "nodelet"])?;
            samples.push(self.after(before)?.saturating_sub(before).as_secs_f64());
        }
        Ok(samples)
    }

    /// Waits until it has done something, and nothing more is to be done.
    fn after(&self, before: Duration) -> Result<Duration> {
        let limit = Instant::now() + LIMIT;
        while self.processor_time()? == before {
            if Instant::now() > limit {
                bail!("the daemon did not notice anything:\n{}", self.node.journal("nodelet")?);
            }
            sleep(Duration::from_millis(1));
        }
        self.settle()
    }

    /// Resident memory, in kilobytes.
    fn memory(&self) -> Result<u64> {
        let path = format!("/proc/{}/status", self.pid);
        let text = fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
        field(&text, "VmRSS:").with_context(|| format!("there is no VmRSS in {path}"))
    }

    /// How often its threads went to sleep by themselves, which they do as often as they wake up.
    fn wake_ups(&self) -> Result<u64> {
        let path = format!("/proc/{}/task", self.pid);
        let mut sum = 0;
        for task in fs::read_dir(&path).with_context(|| format!("listing {path}"))?.flatten() {
            let text = fs::read_to_string(task.path().join("status")).unwrap_or_default();
            sum += field(&text, "voluntary_ctxt_switches:").unwrap_or_default();
        }
        Ok(sum)
    }
}

/// Measures the daemon on a node that is as the reference state wants it.
#[allow(clippy::cast_precision_loss)]
pub(super) fn measure(daemon: &Daemon<'_>, rounds: Rounds, report: &mut Report) -> Result<()> {
    say(&format!("{} checks in the daemon", rounds.quick));
    let checks = daemon.checks(rounds.quick)?;
    report.measure("check, CPU", "daemon", &checks, None);
    report.within("full check in the daemon, CPU", &checks, CHECK);
    let reloads = daemon.reloads(rounds.quick.div_ceil(4))?;
    report.measure("reload and check, CPU", "daemon", &reloads, None);
    say(&format!("watching an idle daemon for {} s", IDLE.as_secs()));
    daemon.settle()?;
    let before = daemon.wake_ups()?;
    sleep(IDLE);
    let woken = daemon.wake_ups()? - before;
    report.not_above("idle daemon, resident memory", daemon.memory()? as f64 / 1000.0, MEMORY, "MB");
    report.not_above(&format!("idle daemon, wake-ups in {} s", IDLE.as_secs()), woken as f64, WAKE_UPS, "");
    super::tool::prove(daemon.node, OLD).context("after the checks in the daemon")
}

fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}
