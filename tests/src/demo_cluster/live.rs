//! What changes, as it does.

use std::collections::{BTreeMap, BTreeSet};
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
    /// Shows how the set is, step by step, until `last` says of a line that it is the last one. Requests that fail meanwhile
    /// are shown where they do.
    pub(super) fn follow(&self, witnesses: &Witnesses, mut last: impl FnMut(&str) -> Result<bool>) -> Result<()> {
        let mut command = self.cluster.kubectl_nodes(&STATUS)?;
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("starting kubectl")?;
        let mut running = Running(child);
        let lines = lines(&mut running)?;
        self.stage.told(&format!("kubectl nodes {} | cat", STATUS.join(" ")), "");
        let start = Instant::now();
        let mut news = News::default();
        let (mut failed, mut sent) = (witnesses.requests.so_far().failures.len(), 0);
        loop {
            let line = match lines.recv_timeout(LIMIT.saturating_sub(start.elapsed())) {
                Ok(line) => line,
                Err(RecvTimeoutError::Timeout) => bail!("the rollout was not over after {} s", LIMIT.as_secs()),
                Err(RecvTimeoutError::Disconnected) => bail!("kubectl nodes {} ended", STATUS.join(" ")),
            };
            let is_new = news.hear(&line);
            if is_new {
                self.stage.seen(start, &line);
            }
            let tally = witnesses.requests.so_far();
            for failure in &tally.failures[failed..] {
                self.stage.seen(start, &format!("A REQUEST FAILED {failure}"));
            }
            failed = tally.failures.len();
            // Several nodes may be done at once.
            if is_new && line.contains(": done, ") && tally.sent > sent {
                sent = tally.sent;
                self.stage.seen(start, &format!("customers: {} requests so far, {failed} failed", tally.sent));
            }
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
            // Columns may be wider than they were.
            if !title.is_empty() && without_age(title) != without_age(&header) {
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

/// What was told of the set and of each node. Every step is told once, and once that a budget holds it up: the percents of
/// a package manager are news for who waits for them, not for who looks on.
#[derive(Default)]
struct News(BTreeSet<(String, String)>);

impl News {
    /// Whether a line says something new.
    fn hear(&mut self, line: &str) -> bool {
        let (about, says) = line.split_once(": ").unwrap_or((line, ""));
        // Of a node `draining, one → another`, of a set `0 of 3 updated, Updating: node-1 is draining`.
        let end = if about.contains('/') { ',' } else { ':' };
        let step = says.split(end).next().unwrap_or_default();
        let held = if says.contains(": PodDisruptionBudget ") { " held up" } else { "" };
        self.0.insert((about.to_owned(), format!("{step}{held}")))
    }
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
    fn every_step_is_told_once() {
        let mut news = News::default();
        let told = [
            ("s: 0 of 3 updated, Updating: n1 is draining", true),
            ("s/n1: draining, a → b, Drain", true),
            ("s/n1: draining, a → b, Drain: 2 pods to leave", false),
            ("s/n1: draining, a → b, Drain: PodDisruptionBudget d/w allows 0 disruptions", true),
            ("s/n1: draining, a → b, Drain: 1 pod to leave", false),
            ("s: 0 of 3 updated, Updating: n1 is applying", false),
            ("s/n1: applying, a → b, Drain", true),
            ("s/n2: draining, a → b, Drain", true),
            ("s: 3 of 3 updated, Updated", true),
        ];
        for (line, wanted) in told {
            assert_eq!(news.hear(line), wanted, "{line}");
        }
    }

    #[test]
    fn only_news_is_shown() {
        assert_eq!(
            without_age("node-1   Ready   <none>   9s   v1.35.8"),
            without_age("node-1 Ready <none> 1m5s v1.35.8")
        );
        assert_ne!(without_age("node-1   Ready   <none>   9s"), without_age("node-1   NotReady   <none>   9s"));
    }
}
