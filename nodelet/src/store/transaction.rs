//! One change of the host, from the plan to its end, written down so that a crash at any moment leaves enough
//! to go on from or to undo.
//!
//! A transaction is a directory. `record.json` says whose it is; `part-N.json` holds a plan with what was there
//! before it; `log` grows by a line before and after each step. A second part comes when a plan follows a plan:
//! after a crash, or because packages brought units that could not be seen before.

use super::{StoreError, failed, read, write};
use crate::host::packages::{Owed, Touched, Withhold};
use crate::host::systemd::UnitSeen;
use crate::plan::Plan;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Why a transaction came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Kind {
    /// The desired state changed.
    Apply,
    /// The host had drifted from a state that was applied before.
    Repair,
    /// A person, or a failed check, asked for the last good state.
    Rollback,
}

/// Whose transaction it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// Its number; they only grow.
    pub number: u64,
    /// Why.
    pub kind: Kind,
    /// The revision that it leads to.
    pub revision: String,
    /// Where that came from.
    pub source: String,
    /// When it began.
    pub started: Timestamp,
}

/// A plan of a transaction, with what was there before it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The plan.
    pub plan: Plan,
    /// What was there.
    pub before: Before,
}

/// What was there before a plan, as far as its steps touch it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Before {
    /// Files by path.
    pub files: BTreeMap<String, FileBefore>,
    /// All installed packages with their versions, when the plan changes any.
    pub packages: Option<BTreeMap<String, String>>,
    /// Which of the plan's packages were held.
    pub holds: BTreeMap<String, bool>,
    /// Units.
    pub units: BTreeMap<String, UnitSeen>,
    /// Kernel parameters.
    pub sysctl: BTreeMap<String, String>,
    /// Units that packages were not to start or restart.
    pub withhold: Withhold,
}

/// What was at a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FileBefore {
    /// Nothing.
    Absent,
    /// A file.
    File {
        /// The name of its content among the blobs.
        content: String,
        /// Its permission bits.
        mode: u32,
        /// Its user's number.
        uid: u32,
        /// Its group's number.
        gid: u32,
    },
}

/// How a transaction ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum End {
    /// All steps succeeded.
    Done,
    /// A step failed, and everything was undone.
    Undone(String),
    /// A step failed, and so did something of the undoing: a person must look.
    Stuck(String),
}

/// One line of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "event")]
enum Event {
    Begun {
        part: usize,
        step: usize,
        at: Timestamp,
        /// What tells afterwards whether the step took effect: the invocation of a unit that is restarted.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mark: Option<String>,
    },
    Done {
        part: usize,
        step: usize,
        at: Timestamp,
    },
    /// The packages that a step touches; without a list, it may be any.
    Touches {
        part: usize,
        packages: Option<BTreeSet<String>>,
    },
    /// What packages asked of systemd during a part, and did not get yet.
    Owes {
        part: usize,
        units: Owed,
    },
    /// What a package had put where a file of ours goes: it comes back when that leaves the state.
    Found {
        part: usize,
        path: String,
        before: FileBefore,
    },
    /// All steps are done; from here on the checks must pass until the end.
    Verifying {
        until: Timestamp,
    },
    Undoing {
        reason: String,
        at: Timestamp,
    },
    Ended {
        end: End,
        at: Timestamp,
    },
}

/// A transaction as `nodelet history` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// Whose it is.
    #[serde(flatten)]
    pub record: Record,
    /// How many steps were done.
    pub steps: usize,
    /// How it ended; `None` while it is under way.
    pub end: Option<End>,
    /// When it ended.
    pub ended: Option<Timestamp>,
}

/// A transaction.
#[derive(Debug)]
pub struct Transaction {
    directory: PathBuf,
    /// Whose it is.
    pub record: Record,
    parts: Vec<Part>,
    events: Vec<Event>,
    /// Opened with the first note: looking at a transaction needs no right to write.
    log: Option<File>,
    /// A power cut left half of the last line.
    torn: bool,
}

impl Transaction {
    pub(super) fn begin(
        directory: &Path,
        number: u64,
        kind: Kind,
        revision: &str,
        source: &str,
    ) -> Result<Self, StoreError> {
        let record =
            Record { number, kind, revision: revision.into(), source: source.into(), started: Timestamp::now() };
        write(&directory.join("record.json"), &record)?;
        let log = Some(open_log(directory)?);
        Ok(Self { directory: directory.to_owned(), record, parts: Vec::new(), events: Vec::new(), log, torn: false })
    }

    /// Reads one; `None` for a directory whose record was never completed: nothing was done in it.
    pub(super) fn open(directory: &Path) -> Result<Option<Self>, StoreError> {
        let Some(record) = read(&directory.join("record.json"))? else { return Ok(None) };
        let mut parts = Vec::new();
        while let Some(part) = read(&directory.join(format!("part-{}.json", parts.len())))? {
            parts.push(part);
        }
        let path = directory.join("log");
        let text = match std::fs::read_to_string(&path) {
            // A power cut came before the first line: nothing was done.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            read => read.map_err(failed("reading", &path))?,
        };
        // A power cut may leave half of the last line: what it would have said did not count yet.
        let events = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let torn = !text.is_empty() && !text.ends_with('\n');
        Ok(Some(Self { directory: directory.to_owned(), record, parts, events, log: None, torn }))
    }

    /// Adds a plan and what is there before it; nothing is done before this is on disk.
    pub fn add_part(&mut self, plan: &Plan, before: Before) -> Result<usize, StoreError> {
        let part = Part { plan: plan.clone(), before };
        write(&self.directory.join(format!("part-{}.json", self.parts.len())), &part)?;
        self.parts.push(part);
        Ok(self.parts.len() - 1)
    }

    /// A step begins. The mark tells afterwards whether it took effect, where nothing else would.
    pub fn step_begins(&mut self, part: usize, step: usize, mark: Option<String>) -> Result<(), StoreError> {
        self.note(Event::Begun { part, step, at: Timestamp::now(), mark })
    }

    /// The mark of a step that was begun.
    pub fn mark(&self, part: usize, step: usize) -> Option<&str> {
        self.events.iter().find_map(|event| match event {
            Event::Begun { part: p, step: s, mark, .. } if (*p, *s) == (part, step) => mark.as_deref(),
            _ => None,
        })
    }

    /// What a step with packages is going to touch, as far as that is known.
    pub fn touches(&mut self, part: usize, packages: Option<BTreeSet<String>>) -> Result<(), StoreError> {
        self.note(Event::Touches { part, packages })
    }

    /// The packages that a part touched: none before that was noted.
    pub fn touched(&self, part: usize) -> Touched<'_> {
        static NOTHING: BTreeSet<String> = BTreeSet::new();
        let noted = self.events.iter().rev().find_map(|event| match event {
            Event::Touches { part: p, packages } if *p == part => Some(packages.as_ref()),
            _ => None,
        });
        noted.unwrap_or(Some(&NOTHING))
    }

    /// What packages asked of systemd in a part.
    pub fn owes(&mut self, part: usize, units: Owed) -> Result<(), StoreError> {
        self.note(Event::Owes { part, units })
    }

    /// What packages asked of systemd in a part, and nobody did before its unit steps.
    pub fn owed(&self, part: usize) -> Owed {
        let of_part = |event: &Event| match event {
            Event::Owes { part: p, units } if *p == part => Some(units.clone()),
            _ => None,
        };
        self.events.iter().filter_map(of_part).flatten().collect()
    }

    /// A package of the same part had put something where a file goes.
    pub fn found(&mut self, part: usize, path: &str, before: FileBefore) -> Result<(), StoreError> {
        self.note(Event::Found { part, path: path.to_owned(), before })
    }

    /// What a package of the same part had put where a file went.
    pub fn found_at(&self, part: usize, path: &str) -> Option<&FileBefore> {
        self.events.iter().find_map(|event| match event {
            Event::Found { part: p, path: at, before } if (*p, at.as_str()) == (part, path) => Some(before),
            _ => None,
        })
    }

    /// Until when the checks must pass: as it was first said, also after a restart.
    pub fn verify_until(&mut self, until: Timestamp) -> Result<Timestamp, StoreError> {
        let said = self.events.iter().find_map(|event| match event {
            Event::Verifying { until } => Some(*until),
            _ => None,
        });
        match said {
            Some(said) => Ok(said),
            None => self.note(Event::Verifying { until }).map(|()| until),
        }
    }

    /// A step is done.
    pub fn step_done(&mut self, part: usize, step: usize) -> Result<(), StoreError> {
        // It need not be on disk before the next step is begun, and that note brings it along: a step that was done
        // and is not known to be is looked at again.
        let event = Event::Done { part, step, at: Timestamp::now() };
        self.append(&event)?;
        self.events.push(event);
        Ok(())
    }

    /// From here on it is undone.
    pub fn undoing(&mut self, reason: &str) -> Result<(), StoreError> {
        self.note(Event::Undoing { reason: reason.into(), at: Timestamp::now() })
    }

    /// It has ended.
    pub fn ended(&mut self, end: End) -> Result<(), StoreError> {
        self.note(Event::Ended { end, at: Timestamp::now() })
    }

    fn note(&mut self, event: Event) -> Result<(), StoreError> {
        self.append(&event)?;
        let path = self.directory.join("log");
        if let Some(log) = &self.log {
            log.sync_data().map_err(failed("writing", &path))?;
        }
        self.events.push(event);
        Ok(())
    }

    fn append(&mut self, event: &Event) -> Result<(), StoreError> {
        let path = self.directory.join("log");
        let mut line = serde_json::to_vec(event).map_err(|error| failed("writing", &path)(error.into()))?;
        line.push(b'\n');
        if std::mem::take(&mut self.torn) {
            line.insert(0, b'\n');
        }
        let log = match &mut self.log {
            Some(log) => log,
            None => self.log.insert(open_log(&self.directory)?),
        };
        log.write_all(&line).map_err(failed("writing", &path))
    }

    /// Its plans.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Whether a step was begun, and whether it was done.
    pub fn step_state(&self, part: usize, step: usize) -> (bool, bool) {
        let mut state = (false, false);
        for event in &self.events {
            match event {
                Event::Begun { part: p, step: s, .. } if (*p, *s) == (part, step) => state.0 = true,
                Event::Done { part: p, step: s, .. } if (*p, *s) == (part, step) => state.1 = true,
                _ => {}
            }
        }
        state
    }

    /// Why it is being undone, if it is.
    pub fn undoing_because(&self) -> Option<&str> {
        self.events.iter().find_map(|event| match event {
            Event::Undoing { reason, .. } => Some(reason.as_str()),
            _ => None,
        })
    }

    /// How it ended, if it did.
    pub fn end(&self) -> Option<&End> {
        self.events.iter().find_map(|event| match event {
            Event::Ended { end, .. } => Some(end),
            _ => None,
        })
    }

    /// What `nodelet history` shows of it.
    pub fn summary(&self) -> Summary {
        let ended = self.events.iter().find_map(|event| match event {
            Event::Ended { at, .. } => Some(*at),
            _ => None,
        });
        let steps = self.events.iter().filter(|event| matches!(event, Event::Done { .. })).count();
        Summary { record: self.record.clone(), steps, end: self.end().cloned(), ended }
    }
}

fn open_log(directory: &Path) -> Result<File, StoreError> {
    let path = directory.join("log");
    OpenOptions::new().create(true).append(true).open(&path).map_err(failed("opening", &path))
}
