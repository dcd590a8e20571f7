//! What changes, as it does.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::{LIMIT, Show, Witnesses};

/// How often something that is watched is looked at.
const LOOK: Duration = Duration::from_millis(250);
/// The product's own view, which prints a line for each change where it has no terminal.
const STATUS: [&str; 3] = ["status", "workers", "--watch"];

/// A command that goes on, ended with its owner.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

impl Show {
    /// Shows how the set is, change by change, until `last` says of a line that it is the last one. Requests that fail
    /// meanwhile are shown where they do.
    pub(super) fn follow(&self, witnesses: &Witnesses, mut last: impl FnMut(&str) -> Result<bool>) -> Result<()> {
        let mut command = self.cluster.kubectl_nodes(&STATUS)?;
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("starting kubectl")?;
        let mut running = Running(child);
        let lines = lines(&mut running)?;
        self.stage.told(&format!("kubectl nodes {} | cat", STATUS.join(" ")), "");
        let start = Instant::now();
        let mut failed = witnesses.requests.so_far().failures.len();
        loop {
            let line = match lines.recv_timeout(LIMIT.saturating_sub(start.elapsed())) {
                Ok(line) => line,
                Err(RecvTimeoutError::Timeout) => bail!("the rollout was not over after {} s", LIMIT.as_secs()),
                Err(RecvTimeoutError::Disconnected) => bail!("kubectl nodes {} ended", STATUS.join(" ")),
            };
            self.stage.seen(start, &line);
            let tally = witnesses.requests.so_far();
            for failure in &tally.failures[failed..] {
                self.stage.seen(start, &format!("A REQUEST FAILED {failure}"));
            }
            failed = tally.failures.len();
            if last(&line)? {
                return Ok(());
            }
        }
    }

    /// Repeats a `kubectl get` until `done`, and shows rows that changed, as `kubectl get -w` would.
    pub(super) fn watch(&self, line: &str, done: impl Fn(&BTreeMap<String, String>) -> bool) -> Result<()> {
        let start = Instant::now();
        let mut known: BTreeMap<String, String> = BTreeMap::new();
        let mut header = String::new();
        self.stage.told(&format!("{line} --watch"), "");
        loop {
            let table = self.ask(line)?;
            let mut lines = table.lines();
            let title = lines.next().unwrap_or_default();
            if title != header && !title.is_empty() {
                title.clone_into(&mut header);
                self.stage.seen(start, title);
            }
            let rows: BTreeMap<String, String> =
                lines.filter_map(|row| Some((row.split_whitespace().next()?.to_owned(), row.to_owned()))).collect();
            for (name, row) in &rows {
                if known.get(name).map(|old| without_age(old)) != Some(without_age(row)) {
                    self.stage.seen(start, row);
                }
            }
            known = rows;
            if done(&known) {
                return Ok(());
            }
            if start.elapsed() > LIMIT {
                bail!("waited {} s for `{line}` to show what was expected; last seen:\n{table}", LIMIT.as_secs());
            }
            thread::sleep(LOOK);
        }
    }
}

/// What a command prints, as it does.
fn lines(running: &mut Running) -> Result<Receiver<String>> {
    let output = running.0.stdout.take().context("kubectl has no standard output")?;
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            // Nobody listens any more: the show goes on elsewhere.
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    Ok(receiver)
}

/// A row without its age, which changes by itself.
fn without_age(row: &str) -> Vec<&str> {
    let is_age = |word: &&str| word.ends_with(['s', 'm', 'h']) && word.starts_with(|c: char| c.is_ascii_digit());
    row.split_whitespace().filter(|word| !is_age(word)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_news_is_shown() {
        assert_eq!(
            without_age("node-1   Ready   <none>   9s   v1.35.8"),
            without_age("node-1 Ready <none> 1m5s v1.35.8")
        );
        assert_ne!(without_age("node-1   Ready   <none>   9s"), without_age("node-1   NotReady   <none>   9s"));
    }
}
