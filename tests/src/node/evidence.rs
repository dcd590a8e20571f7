//! What is kept of a node when its test fails.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use super::Node;
use crate::command::run;
use crate::paths;

/// Evidence must not hold the end of a failing run up.
const LIMIT: Duration = Duration::from_secs(20);

/// Questions to a node that still answers, and the file that the answer goes to.
const QUESTIONS: [(&str, &str); 6] = [
    (
        "units.txt",
        "systemctl --failed --no-pager --full; systemctl list-units --no-pager --full; systemctl list-jobs --no-pager",
    ),
    ("processes.txt", "ps -eo pid,ppid,stat,etime,args --forest"),
    ("dpkg.txt", "dpkg --audit; dpkg -l"),
    ("rpm.txt", "command -v rpm >/dev/null && rpm -qa || true"),
    ("network.txt", "ip addr; ip route; ss -tlnp || true"),
    ("journal.txt", "journalctl --no-pager -o short-precise"),
];

/// Directories of its disk that are copied, also from a node that is off.
const DIRECTORIES: [&str; 5] = ["etc/nodelet", "var/lib/nodelet", "var/log/apt", "var/log/journal", "etc/kubernetes"];

/// The directory for the test that runs in this thread. libtest names each test's thread after the test.
pub fn where_evidence_goes() -> PathBuf {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("unnamed").replace("::", ".");
    paths::build().join("failed").join(test)
}

impl Node {
    /// Copies the node's journal and state to the checkout's `build/failed` and says where. Done by itself when a
    /// test panics while it holds the node.
    pub fn keep_evidence(&self) {
        let dir = where_evidence_goes().join(&self.name);
        match self.keep_in(&dir) {
            Ok(()) => eprintln!("the journal and state of the node {} are in {}", self.name, dir.display()),
            Err(error) => eprintln!("keeping the journal and state of the node {}: {error:#}", self.name),
        }
    }

    fn keep_in(&self, dir: &Path) -> Result<()> {
        if dir.exists() {
            fs::remove_dir_all(dir).with_context(|| format!("removing the older {}", dir.display()))?;
        }
        fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
        for (file, script) in QUESTIONS {
            // A node that is off or broken can't answer; its disk still can.
            if let Ok(answer) = self.exec_with(&["sh", "-c", script], None, LIMIT) {
                fs::write(dir.join(file), answer.text()).with_context(|| format!("writing {file}"))?;
            }
        }
        fs::copy(self.console(), dir.join("console.log")).context("copying the console's output")?;
        for path in DIRECTORIES {
            let source = self.root().join(path);
            if source.is_dir() {
                let target = dir.join(path.replace('/', "-"));
                run(Command::new("cp").arg("-a").arg(&source).arg(&target))?;
            }
        }
        Ok(())
    }
}
