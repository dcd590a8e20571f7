//! One program of the control plane, which can be stopped, killed and started again.

use std::fmt::Display;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;

use crate::wait::{Seen, wait_until};
use crate::{Slot, process};

/// The API server finishes requests before it ends.
const STOP_LIMIT: Duration = Duration::from_secs(2 * 60);

/// A program with its arguments, running or not.
#[derive(Debug)]
pub struct Component {
    name: String,
    program: PathBuf,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    slot_dir: PathBuf,
    log: PathBuf,
    child: Mutex<Option<Child>>,
}

impl Component {
    pub(super) fn new(name: &str, slot: &Slot, program: PathBuf, dir: &Path) -> Self {
        Self {
            name: name.to_owned(),
            program,
            arguments: Vec::new(),
            environment: Vec::new(),
            slot_dir: slot.dir().to_path_buf(),
            log: dir.join(format!("{name}.log")),
            child: Mutex::default(),
        }
    }

    /// Adds `--name=value`.
    #[must_use]
    pub(super) fn flag(mut self, name: &str, value: impl Display) -> Self {
        self.arguments.push(format!("--{name}={value}"));
        self
    }

    /// Adds a plain argument.
    #[must_use]
    pub(super) fn word(mut self, word: &str) -> Self {
        self.arguments.push(word.to_owned());
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub(super) fn env(mut self, name: &str, value: impl Display) -> Self {
        self.environment.push((name.to_owned(), value.to_string()));
        self
    }

    /// What it printed, over all its starts.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Its resident memory, in bytes.
    pub fn memory(&self) -> Result<u64> {
        let child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        let pid = child.as_ref().with_context(|| format!("{} does not run", self.name))?.id();
        let path = format!("/proc/{pid}/status");
        let status = std::fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
        let kilobytes: u64 = line.and_then(|number| number.parse().ok()).with_context(|| format!("reading {path}"))?;
        Ok(kilobytes * 1024)
    }

    /// Starts it. It may not serve yet when this returns.
    pub fn start(&self) -> Result<()> {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = child.as_mut()
            && running.try_wait().with_context(|| format!("looking at {}", self.name))?.is_none()
        {
            bail!("{} runs already", self.name);
        }
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.log)
            .with_context(|| format!("opening {}", self.log.display()))?;
        // In a session of its own: Ctrl-C is the reaper's business.
        let started = Command::new("setsid")
            .arg(&self.program)
            .args(&self.arguments)
            .envs(self.environment.iter().cloned())
            .env(process::MARK, &self.slot_dir)
            .stdin(Stdio::null())
            .stdout(Stdio::from(log.try_clone().context("opening the log a second time")?))
            .stderr(Stdio::from(log))
            .spawn()
            .with_context(|| format!("starting {}", self.program.display()))?;
        *child = Some(started);
        Ok(())
    }

    /// Asks it to end and waits until it has.
    pub fn stop(&self) -> Result<()> {
        self.end(Signal::SIGTERM)
    }

    /// Ends it as a crash would.
    pub fn kill(&self) -> Result<()> {
        self.end(Signal::SIGKILL)
    }

    fn end(&self, signal: Signal) -> Result<()> {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(running) = child.as_mut() else {
            bail!("{} does not run", self.name);
        };
        process::signal(running.id().cast_signed(), signal)?;
        wait_until(&format!("{} to end", self.name), STOP_LIMIT, || {
            Ok(match running.try_wait().with_context(|| format!("looking at {}", self.name))? {
                Some(_) => Seen::Done(()),
                None => Seen::not_yet("it runs"),
            })
        })?;
        *child = None;
        Ok(())
    }

    /// Waits until `ask` succeeds; gives up at once when the program is gone, and shows the end of its log.
    pub(super) fn wait_until(&self, what: &str, limit: Duration, ask: impl Fn() -> Result<String>) -> Result<()> {
        let waited = wait_until(what, limit, || {
            let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
            let ended = match child.as_mut() {
                Some(running) => running.try_wait().with_context(|| format!("looking at {}", self.name))?,
                None => bail!("{} was not started", self.name),
            };
            drop(child);
            if let Some(status) = ended {
                bail!("{} ended ({status})", self.name);
            }
            Ok(match ask() {
                Ok(_) => Seen::Done(()),
                Err(error) => Seen::not_yet(format!("{error:#}")),
            })
        });
        waited.with_context(|| {
            let log = std::fs::read_to_string(&self.log).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            format!("the end of {}:\n{}", self.log.display(), lines[lines.len().saturating_sub(20)..].join("\n"))
        })
    }
}
