//! Runs other programs.

use crate::progress::{Progress, Tell};
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;

/// What went wrong with another program.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// It could not be started.
    #[error("starting `{command}`: {source}; is it installed?")]
    Start {
        /// The command line.
        command: String,
        /// Why.
        source: std::io::Error,
    },
    /// It ended with an error.
    #[error("`{command}` ended with {status}: {message}")]
    Failed {
        /// The command line.
        command: String,
        /// How it ended.
        status: String,
        /// Its own last words.
        message: String,
    },
    /// It took too long and was ended.
    #[error("`{command}` was ended after {} s without a result", limit.as_secs())]
    TimedOut {
        /// The command line.
        command: String,
        /// The limit.
        limit: Duration,
    },
}

/// A program to run, with a clean environment: the output doesn't depend on who calls.
#[derive(Debug)]
pub struct Program {
    inner: Command,
    shown: String,
    limit: Duration,
    outlives: bool,
}

/// Where programs are found.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Package transactions with slow mirrors and disks take minutes; nothing takes longer than this.
const DEFAULT_LIMIT: Duration = Duration::from_secs(3600);
/// How often the output of a long-running program is looked at for progress.
const LOOK: Duration = Duration::from_millis(250);

impl Program {
    /// The program `name`, found by `PATH`.
    pub fn new(name: &str) -> Self {
        let mut inner = Command::new(name);
        inner.env_clear().env("PATH", PATH).env("LC_ALL", "C.UTF-8").env("HOME", "/root").stdin(Stdio::null());
        Self { inner, shown: name.to_owned(), limit: DEFAULT_LIMIT, outlives: false }
    }

    /// One more argument.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.shown.push(' ');
        self.shown.push_str(&arg.as_ref().to_string_lossy());
        self.inner.arg(arg);
        self
    }

    /// Arguments that say how, not what: messages leave them out.
    #[must_use]
    pub fn quietly<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.inner.args(args);
        self
    }

    /// Several more arguments.
    #[must_use]
    pub fn args<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        for arg in args {
            self = self.arg(arg);
        }
        self
    }

    /// An environment variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.inner.env(name, value);
        self
    }

    /// Finds programs here first.
    #[must_use]
    pub fn with_programs_of(self, directory: &str) -> Self {
        self.env("PATH", &format!("{directory}:{PATH}"))
    }

    /// Ends it when it takes longer.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Goes on when the daemon stops or is restarted: a package transaction that is cut off leaves
    /// half-configured packages, and one that upgrades nodelet itself restarts it half-way.
    #[must_use]
    pub fn outlives_us(mut self) -> Self {
        self.outlives = true;
        self
    }

    /// Runs it; what it printed, when it succeeded.
    pub async fn run(self) -> Result<String, CommandError> {
        self.run_telling(&|_| (), |_| None, &[]).await
    }

    /// Runs it, and tells how far it is: `part` finds that in a line of its output. A line with one of the signs is a
    /// failure too, whatever its exit code.
    pub async fn run_telling(
        self,
        tell: Tell<'_>,
        part: fn(&str) -> Option<(u8, &str)>,
        signs: &[&str],
    ) -> Result<String, CommandError> {
        let Self { mut inner, shown, limit, outlives } = self;
        tracing::debug!(command = shown, "running");
        let start = |source| CommandError::Start { command: shown.clone(), source };
        // Files, not pipes: writing to a pipe whose reader is gone would kill a program that outlives us.
        // In memory: a full disk must not keep the package manager from making room.
        let (stdout, stderr) = (memory_file().map_err(start)?, memory_file().map_err(start)?);
        inner.stdout(stdout.try_clone().map_err(start)?).stderr(stderr.try_clone().map_err(start)?);
        let mut child = inner.kill_on_drop(!outlives).spawn().map_err(start)?;
        let end = tokio::time::Instant::now() + limit;
        let mut read = 0;
        let status = loop {
            tokio::select! {
                status = child.wait() => break status.map_err(start)?,
                () = tokio::time::sleep_until(end) => {
                    child.kill().await.map_err(start)?;
                    return Err(CommandError::TimedOut { command: shown, limit });
                }
                () = tokio::time::sleep(LOOK) => {
                    let news = text(&stdout, read).map_err(start)?;
                    read += news.rfind('\n').map_or(0, |last| last as u64 + 1);
                    if let Some((percent, what)) = news.lines().rev().find_map(part) {
                        tell(Progress::Part { percent, what });
                    }
                }
            }
        };
        let stdout = text(&stdout, 0).map_err(start)?;
        let stderr = text(&stderr, 0).map_err(start)?;
        let lines = || stdout.lines().chain(stderr.lines()).map(str::trim);
        let told: Vec<&str> = lines().filter(|line| signs.iter().any(|sign| line.contains(sign))).collect();
        if status.success() && told.is_empty() {
            return Ok(stdout);
        }
        let message = if told.is_empty() { last_words(&stdout, &stderr) } else { told.join("; ") };
        Err(CommandError::Failed { command: shown, status: status.to_string(), message })
    }
}

fn memory_file() -> io::Result<File> {
    Ok(memfd_create(c"nodelet-output", MFdFlags::MFD_CLOEXEC)?.into())
}

/// What is in a file from an offset on; the file's own position, which the program writes at, stays.
fn text(file: &File, from: u64) -> io::Result<String> {
    let length = file.metadata()?.len().saturating_sub(from);
    let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    file.read_exact_at(&mut bytes, from)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// How lines begin that say what went wrong: apt's, dpkg's, dnf's.
const MARKS: [&str; 8] =
    ["E:", "Error:", "error:", "dpkg: error", "W: GPG", "The GPG keys listed", "Public key for", "Failing package is"];

fn says_something(line: &str) -> bool {
    !line.is_empty() && !["dlstatus:", "pmstatus:"].iter().any(|progress| line.starts_with(progress))
}

/// The lines that say what went wrong: marked errors first, else the end of what was printed.
fn last_words(stdout: &str, stderr: &str) -> String {
    let mut marked: Vec<&str> = Vec::new();
    for line in stderr.lines().chain(stdout.lines()).map(str::trim) {
        // The cause often stands on the line below the one that says what failed.
        let goes_on = marked.last().is_some_and(|last| last.ends_with(':')) && says_something(line);
        let is_marked = MARKS.iter().any(|mark| line.starts_with(mark)) || line.contains(" is needed by ");
        if (is_marked || goes_on) && !marked.contains(&line) {
            marked.push(line);
        }
    }
    if !marked.is_empty() {
        return marked.join("; ").replace(":; ", ": ");
    }
    let lines: Vec<&str> =
        stderr.lines().chain(stdout.lines()).map(str::trim).filter(|line| says_something(line)).collect();
    lines[lines.len().saturating_sub(5)..].join("; ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn a_failure_carries_the_programs_own_words() {
        let script = "echo noise; echo 'E: Unable to locate package nope' >&2; exit 100";
        let error = Program::new("sh").args(["-c", script]).run().await.unwrap_err().to_string();
        assert!(error.ends_with("exit status: 100: E: Unable to locate package nope"), "{error}");
    }

    #[tokio::test]
    async fn nothing_runs_for_ever() {
        let error = Program::new("sleep").arg("60").limit(Duration::from_millis(50)).run().await.unwrap_err();
        assert!(matches!(error, CommandError::TimedOut { .. }), "{error}");
    }
}
