//! Commands and files in a node.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::Node;
use crate::command::{self, Output};
use crate::wait::{Seen, wait_until};

/// Enough for any package operation on a test node; a command that hangs ends here instead of holding the run up.
const EXEC_LIMIT: Duration = Duration::from_secs(5 * 60);

impl Node {
    /// Runs a command in the node, whatever its exit code.
    pub fn exec(&self, words: &[&str]) -> Result<Output> {
        self.exec_with(words, None, EXEC_LIMIT)
    }

    /// The same with standard input and a limit.
    pub fn exec_with(&self, words: &[&str], input: Option<&[u8]>, limit: Duration) -> Result<Output> {
        let mut command = self.entering()?;
        command.args(words);
        command::output(&mut command, input, limit).with_context(|| format!("in the node {}", self.name))
    }

    /// Runs a script with `sh -eu` in the node, whatever its exit code.
    pub fn sh(&self, script: &str) -> Result<Output> {
        self.exec(&["sh", "-euc", script])
    }

    /// Runs a command that must succeed, and returns its standard output.
    pub fn run(&self, words: &[&str]) -> Result<String> {
        let done = self.exec(words)?;
        if !done.success() {
            bail!("in the node {}, `{}` failed ({}):\n{}", self.name, words.join(" "), done.status, done.text());
        }
        Ok(done.stdout)
    }

    /// Runs a script that must succeed, and returns its standard output.
    pub fn run_sh(&self, script: &str) -> Result<String> {
        self.run(&["sh", "-euc", script])
    }

    /// A command of the host that continues inside the node, for tests that want to hold the process themselves.
    pub fn entering(&self) -> Result<Command> {
        let mut command = Command::new("nsenter");
        command
            .args(["-t", &self.leader()?.to_string(), "-m", "-u", "-i", "-n", "-p", "-C", "--", "env", "-i"])
            .args(["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"])
            .args(["LANG=C.UTF-8", "TERM=dumb"]);
        Ok(command)
    }

    /// A file's content.
    pub fn read_file(&self, path: &str) -> Result<String> {
        self.run(&["cat", "--", path])
    }

    /// Writes a file at once (through a temporary name), and the directories above it.
    pub fn write_file(&self, path: &str, content: impl AsRef<[u8]>, mode: u32) -> Result<()> {
        let script = r#"mkdir -p "$(dirname "$1")"; umask 077; cat > "$1.testbed"; chmod "$2" "$1.testbed"; mv -T "$1.testbed" "$1""#;
        let mode = format!("{mode:o}");
        let words = ["sh", "-euc", script, "sh", path, &mode];
        let done = self.exec_with(&words, Some(content.as_ref()), EXEC_LIMIT)?;
        if !done.success() {
            bail!("writing {path} in the node {} failed:\n{}", self.name, done.text());
        }
        Ok(())
    }

    /// Whether there is something at a path (a dangling link counts).
    pub fn exists(&self, path: &str) -> Result<bool> {
        Ok(self.sh(&format!("test -e '{path}' || test -L '{path}'"))?.success())
    }

    /// All that a unit wrote, over all boots.
    pub fn journal(&self, unit: &str) -> Result<String> {
        self.run(&["journalctl", "--no-pager", "-o", "short-precise", "-u", unit])
    }

    /// `ActiveState` of a unit: active, inactive, failed, activating, …
    pub fn unit_state(&self, unit: &str) -> Result<String> {
        self.run(&["systemctl", "show", "--property=ActiveState", "--value", unit])
    }

    /// Waits until a script succeeds in the node.
    pub fn wait_for(&self, what: &str, limit: Duration, script: &str) -> Result<()> {
        wait_until(&format!("{what} (on {})", self.name), limit, || {
            Ok(match self.sh(script) {
                Ok(done) if done.success() => Seen::Done(()),
                Ok(done) => Seen::not_yet(format!("code {}: {}", done.code(), done.text())),
                Err(error) => Seen::not_yet(format!("{error:#}")),
            })
        })
    }

    /// The system state once it is up: running, or degraded when a unit failed.
    pub(crate) fn wait_until_up(&self) -> Result<String> {
        let outcome = wait_until(&format!("the node {} to be up", self.name), super::BOOT_LIMIT, || {
            if !self.machine.is_on() {
                bail!("the node {} went off while it booted", self.name);
            }
            let state = match self.exec(&["systemctl", "is-system-running"]) {
                Ok(done) => done.text(),
                Err(error) => format!("{error:#}"),
            };
            Ok(match state.as_str() {
                "running" | "degraded" => Seen::Done(state),
                _ => Seen::not_yet(state),
            })
        });
        let outcome = outcome.with_context(|| {
            let console = std::fs::read_to_string(self.console()).unwrap_or_default();
            let lines: Vec<&str> = console.lines().collect();
            format!("the end of its console:\n{}", lines[lines.len().saturating_sub(30)..].join("\n"))
        })?;
        self.machine.port()?;
        Ok(outcome)
    }
}
