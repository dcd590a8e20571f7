//! The nspawn process under a node, and the thread that starts it again after a reboot.

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::Bind;
use crate::cgroup::{self, Layout};
use crate::command::ip;
use crate::slot::teardown;
use crate::wait::{Seen, wait_until};
use crate::{Slot, process};

/// With `--keep-unit`, nspawn does not restart a machine that reboots: it ends with this code.
const REBOOT: i32 = 133;
/// Killed processes are gone in milliseconds; a busy machine may need longer.
const KILL_LIMIT: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(crate) struct Machine {
    /// `nltN-NAME`: nspawn's machine, and the control groups.
    name: String,
    hostname: String,
    bridge: String,
    slot_dir: PathBuf,
    dir: PathBuf,
    binds: Vec<Bind>,
    /// Set while the node is to be off: the supervisor then starts nothing.
    off: AtomicBool,
    supervisor: Mutex<Option<thread::JoinHandle<()>>>,
}

impl Machine {
    pub(crate) fn new(slot: &Arc<Slot>, name: &str, dir: &Path, binds: Vec<Bind>) -> Result<Arc<Self>> {
        for bind in &binds {
            if !bind.source.exists() {
                bail!("{} does not exist, so the node can't be shown it", bind.source.display());
            }
        }
        Ok(Arc::new(Self {
            name: format!("{}{name}", slot.number().prefix()),
            hostname: name.to_owned(),
            bridge: slot.number().bridge(),
            slot_dir: slot.dir().to_path_buf(),
            dir: dir.to_path_buf(),
            binds,
            off: AtomicBool::new(true),
            supervisor: Mutex::default(),
        }))
    }

    /// Starts it and keeps it: a reboot asked for inside starts it again.
    pub(crate) fn power_on(self: &Arc<Self>) -> Result<()> {
        let mut supervisor = self.supervisor.lock().unwrap_or_else(PoisonError::into_inner);
        if supervisor.as_ref().is_some_and(|thread| !thread.is_finished()) {
            bail!("the node {} is on already", self.hostname);
        }
        self.off.store(false, Ordering::SeqCst);
        let mut child = self.command()?.spawn().context("starting systemd-nspawn")?;
        let machine = Arc::clone(self);
        *supervisor = Some(thread::spawn(move || {
            loop {
                let ended = child.wait();
                let rebooting = matches!(&ended, Ok(status) if status.code() == Some(REBOOT));
                if !rebooting || machine.off.load(Ordering::SeqCst) {
                    return;
                }
                child = match machine.clear().and_then(|()| machine.command()?.spawn().context("starting nspawn")) {
                    Ok(next) => next,
                    Err(error) => {
                        // Seen by whoever waits for the node, as a node that does not come back.
                        eprintln!("starting {} again after its reboot: {error:#}", machine.name);
                        return;
                    }
                };
            }
        }));
        Ok(())
    }

    /// Whether nspawn is there, or about to be started again.
    pub(crate) fn is_on(&self) -> bool {
        let supervisor = self.supervisor.lock().unwrap_or_else(PoisonError::into_inner);
        supervisor.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// A power cut. Killing nspawn alone does not do it: the node's processes live on without it. Killing its process
    /// 1 does: the kernel then ends all that is in its pid namespace.
    pub(crate) fn power_off_hard(&self) -> Result<()> {
        self.off.store(true, Ordering::SeqCst);
        let what = format!("the processes of {} to end", self.hostname);
        process::end_all(&what, KILL_LIMIT, || {
            let mut all = self.nspawn()?;
            all.extend(process::rooted_below(&self.dir)?);
            Ok(all)
        })?;
        if let Some(thread) = self.supervisor.lock().unwrap_or_else(PoisonError::into_inner).take() {
            thread.join().ok();
        }
        self.clear()
    }

    /// What a machine that is off does not have: control groups of pods, and its end of the cable.
    fn clear(&self) -> Result<()> {
        wait_until(&format!("the control groups of {} to be free", self.name), KILL_LIMIT, || {
            Ok(match cgroup::remove(&self.name) {
                Ok(()) => Seen::Done(()),
                Err(error) => Seen::not_yet(format!("{error:#}")),
            })
        })?;
        // The kernel takes the cable away with the network namespace, but later; nspawn would find its name taken.
        if let Ok(port) = fs::read_to_string(self.dir.join("port")) {
            ip(&format!("link del {port}")).ok();
            fs::remove_file(self.dir.join("port")).ok();
        }
        Ok(())
    }

    fn nspawn(&self) -> Result<Vec<i32>> {
        let wanted = format!("--machine={}", self.name);
        Ok(process::marked(&self.slot_dir)?
            .into_iter()
            .filter(|pid| {
                fs::read(format!("/proc/{pid}/cmdline"))
                    .is_ok_and(|line| line.split(|byte| *byte == 0).any(|word| word == wanted.as_bytes()))
            })
            .collect())
    }

    pub(crate) fn leader(&self) -> Result<i32> {
        match process::init_of(&self.dir)? {
            Some(pid) => Ok(pid),
            None => bail!("the node {} has no process 1 (it is off, or it is booting)", self.hostname),
        }
    }

    /// The interface of the host that the node's cable ends in. Remembered in a file, because a dead node can't say.
    pub(crate) fn port(&self) -> Result<String> {
        let file = self.dir.join("port");
        if let Ok(port) = fs::read_to_string(&file) {
            return Ok(port);
        }
        let leader = self.leader()?;
        let peer = crate::command::run(Command::new("nsenter").args([
            "-t",
            &leader.to_string(),
            "-n",
            "-m",
            "cat",
            "/sys/class/net/host0/iflink",
        ]))
        .with_context(|| format!("looking for the cable of {}", self.hostname))?;
        for port in teardown::ports(&self.bridge) {
            let index = fs::read_to_string(format!("/sys/class/net/{port}/ifindex")).unwrap_or_default();
            if index.trim() == peer.trim() {
                fs::write(&file, &port).with_context(|| format!("writing {}", file.display()))?;
                return Ok(port);
            }
        }
        bail!("no interface on {} belongs to {}", self.bridge, self.hostname)
    }

    fn command(&self) -> Result<Command> {
        let console = self.dir.join("console.log");
        let log: File = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&console)
            .with_context(|| format!("opening {}", console.display()))?;
        let groups = cgroup::make(&self.name)?;
        let legacy = matches!(cgroup::layout()?, Layout::Legacy(_));
        // In a session of its own, so that Ctrl-C does not shut it down half-way; the shell puts itself, and so what
        // it becomes, into the control groups.
        let mut command = Command::new("setsid");
        if !legacy && Path::new("/run/systemd/system").exists() {
            command.args(["systemd-run", "--scope", "--quiet", "--collect", "--property=Delegate=yes"]);
            command.arg(format!("--unit={}", self.name));
        }
        command.args([
            "sh",
            "-c",
            "for group in $GROUPS_TO_JOIN; do echo $$ > $group || exit 1; done; exec \"$@\"",
            "sh",
        ]);
        command.args(["systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--boot"]);
        command.arg(format!("--directory={}", self.dir.join("root").display()));
        command.arg(format!("--machine={}", self.name));
        command.arg(format!("--hostname={}", self.hostname));
        command.arg(format!("--network-bridge={}", self.bridge));
        command.args([
            "--capability=all",
            "--bind=/dev/kmsg",
            "--console=read-only",
            "--resolv-conf=off",
            "--timezone=off",
        ]);
        // What container runtimes ask the kernel for, and nspawn refuses by default.
        command.arg("--system-call-filter=add_key keyctl bpf @keyring perf_event_open");
        for bind in &self.binds {
            let flag = if bind.writable { "--bind" } else { "--bind-ro" };
            command.arg(format!("{flag}={}:{}", bind.source.display(), bind.target));
        }
        let joined: Vec<String> = groups.iter().map(|file| file.display().to_string()).collect();
        command
            .env("GROUPS_TO_JOIN", joined.join(" "))
            .env(process::MARK, &self.slot_dir)
            .env("SYSTEMD_NSPAWN_API_VFS_WRITABLE", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::from(log.try_clone().context("opening the console a second time")?))
            .stderr(Stdio::from(log));
        if legacy {
            command.env("SYSTEMD_NSPAWN_UNIFIED_HIERARCHY", "0");
        }
        Ok(command)
    }
}
