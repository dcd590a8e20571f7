//! Gates of sets: asked while a set has something to do, and at no other time.
//!
//! Each is asked by a task of its own, so that one that does not answer keeps no other waiting. What was found is part of
//! the world that is decided from.
//!
//! To add a kind: a type and a field of `Gate` in `api/src/objects/gate.rs`, its rules in `api/src/crd/rules.rs`, a file here
//! with `ask`, which fails with the sentence that people read or leaves an expression to be evaluated, a line in [`Asker::ask`], and a section in `docs/gates.md`.
//! Units of nodes are no business of this module: nodes report them, and `rollout/units.rs` looks at that.

mod cel;
mod http;
mod job;
mod names;
mod object;
mod prometheus;
mod web;

pub(crate) use cel::serve as evaluate;

use crate::rollout::runs;
use crate::world::{Answer, Gates, Held, Run, Runs};
use anyhow::anyhow;
use cel::Question;
use jiff::Timestamp;
use job::Owner;
use kube::core::ApiResource;
use kube::{Client, ResourceExt};
use nodelet_api::objects::{Gate, NodeSet, SlotStep};
use object::Kinds;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore};
use tokio::task::AbortHandle;

/// How often they are asked.
const PAUSE: Duration = Duration::from_secs(5);
/// How often a Job is looked at that runs: a node waits for its end.
const RUN_PAUSE: Duration = Duration::from_secs(1);
/// How long one may take to answer.
const LIMIT: Duration = Duration::from_secs(5);

/// As many characters of a sentence are kept.
const SENTENCE: usize = 500;

/// A gate of a set; with a Job, one of its runs.
type Key = (String, String, Option<Run>);

/// What asks them.
pub(crate) struct Gatekeeper {
    asker: Arc<Asker>,
    changed: Arc<Notify>,
    tasks: Arc<Mutex<BTreeMap<Key, Task>>>,
    /// How many tasks there were.
    count: AtomicU64,
}

/// A gate that is asked, until this is dropped.
struct Task {
    /// No two have the same: one that was ended may still be about to say something.
    number: u64,
    owner: Owner,
    gate: Gate,
    /// When the last question began.
    asked: Option<Timestamp>,
    answer: Option<Answer>,
    /// Since when a node waits for an answer that is newer.
    needed: Option<Timestamp>,
    /// Ends the pause before the next question.
    wake: Arc<Notify>,
    handle: AbortHandle,
}

impl Task {
    /// A node waits for an answer since then. A question that began before does not count.
    fn need(&mut self, since: Option<Timestamp>) {
        self.needed = since;
        if since.is_some_and(|since| self.asked.is_some_and(|asked| asked < since)) {
            self.wake.notify_one();
        }
    }

    /// Takes an answer up; whether that is news to whoever decides.
    fn take(&mut self, answer: &Answer) -> bool {
        let before = self.answer.replace(answer.clone());
        let other = before.as_ref().is_none_or(|before| before.found != answer.found);
        let awaited = self.needed.is_some_and(|since| before.is_none_or(|before| before.asked < since));
        other || awaited
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.handle.abort();
    }
}

impl Gatekeeper {
    pub(crate) fn new(client: &Client, namespace: &str, changed: &Arc<Notify>) -> Self {
        let asker = Asker {
            client: client.clone(),
            namespace: namespace.to_owned(),
            kinds: Kinds::default(),
            evaluations: Semaphore::new(cel::AT_ONCE),
        };
        let (tasks, count) = (Arc::default(), AtomicU64::new(0));
        Self { asker: Arc::new(asker), changed: Arc::clone(changed), tasks, count }
    }

    fn tasks(&self) -> MutexGuard<'_, BTreeMap<Key, Task>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the gates of sets that have something to do, and no others.
    pub(crate) fn watch(&self, sets: &BTreeMap<String, Arc<NodeSet>>) {
        let wanted: BTreeMap<Key, (Owner, &Gate)> = sets.iter().flat_map(|(name, set)| wanted(name, set)).collect();
        let mut tasks = self.tasks();
        tasks.retain(|key, one| wanted.get(key).is_some_and(|(owner, gate)| one.owner == *owner && one.gate == **gate));
        for (key, (owner, gate)) in wanted {
            let since = sets.get(&key.0).filter(|_| key.2.is_none()).and_then(|set| soaks_since(set));
            let task = tasks.entry(key).or_insert_with_key(|key| {
                let (number, wake) = (self.count.fetch_add(1, Ordering::Relaxed), Arc::default());
                let asking = self.keep_asking(key.clone(), number, owner.clone(), gate.clone(), Arc::clone(&wake));
                let handle = tokio::spawn(asking).abort_handle();
                Task { number, owner, gate: gate.clone(), asked: None, answer: None, needed: None, wake, handle }
            });
            task.need(since);
        }
    }

    /// Asks nothing any more: only who leads may run Jobs.
    pub(crate) fn rest(&self) {
        self.tasks().clear();
    }

    fn keep_asking(
        &self,
        key: Key,
        number: u64,
        owner: Owner,
        gate: Gate,
        wake: Arc<Notify>,
    ) -> impl Future<Output = ()> + Send + use<> {
        let (asker, tasks, changed) = (Arc::clone(&self.asker), Arc::clone(&self.tasks), Arc::clone(&self.changed));
        // With this task alone, not with one that has its place by now.
        let with_task = move |key: &Key, change: &mut dyn FnMut(&mut Task)| {
            let mut tasks = tasks.lock().unwrap_or_else(PoisonError::into_inner);
            tasks.get_mut(key).filter(|task| task.number == number).map(change).is_some()
        };
        async move {
            loop {
                let begun = Timestamp::now();
                if !with_task(&key, &mut |task| task.asked = Some(begun)) {
                    return;
                }
                let found = asker.ask_in_time(&owner, &gate, key.2.as_ref()).await;
                let (answer, mut news) = (Answer { asked: begun, found }, false);
                if !with_task(&key, &mut |task| news = task.take(&answer)) {
                    return;
                }
                if news {
                    changed.notify_one();
                }
                let pause = match (&key.2, answer.found) {
                    // Once is enough.
                    (Some(_), Ok(())) => return,
                    (Some(_), Err(Held::Runs(_))) => RUN_PAUSE,
                    _ => PAUSE,
                };
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    () = wake.notified() => {}
                }
            }
        }
    }

    /// What was found, as far as it was asked.
    pub(crate) fn found(&self) -> BTreeMap<String, Gates> {
        let mut found: BTreeMap<String, Gates> = BTreeMap::new();
        for ((set, gate, run), task) in self.tasks().iter() {
            if let (None, Some(answer)) = (run, &task.answer) {
                found.entry(set.clone()).or_default().0.insert(gate.clone(), answer.clone());
            }
        }
        found
    }

    /// What became of Jobs, by set.
    pub(crate) fn runs(&self) -> BTreeMap<String, Runs> {
        let mut found: BTreeMap<String, Runs> = BTreeMap::new();
        for ((set, _, run), task) in self.tasks().iter() {
            if let (Some(run), Some(answer)) = (run, &task.answer) {
                found.entry(set.clone()).or_default().insert(run.clone(), answer.found.clone());
            }
        }
        found
    }
}

/// The gates of a set that are to be asked now.
fn wanted<'s>(name: &str, set: &'s NodeSet) -> Vec<(Key, (Owner, &'s Gate))> {
    let busy =
        set.status.as_ref().is_some_and(|status| !status.slots.is_empty() || status.updated_replicas < status.replicas);
    if !busy {
        return Vec::new();
    }
    let owner = Owner { set: name.to_owned(), uid: set.uid().unwrap_or_default() };
    let key = |gate: &Gate, run| (name.to_owned(), gate.name.clone(), run);
    let gates = &set.spec.health.gates;
    let plain = gates.iter().filter(|gate| runs::is_of_cluster(gate)).map(|gate| (key(gate, None), gate));
    let jobs = runs::wanted(set).into_iter().map(|(gate, run)| (key(gate, Some(run)), gate));
    plain.chain(jobs).map(|(key, gate)| (key, (owner.clone(), gate))).collect()
}

/// When the last of a set's nodes came so far that gates say whether it is done.
fn soaks_since(set: &NodeSet) -> Option<Timestamp> {
    let slots = set.status.iter().flat_map(|status| &status.slots).filter(|slot| slot.step == SlotStep::Soaking);
    slots.filter_map(|slot| slot.since.parse().ok()).max()
}

/// What gates are asked with.
struct Asker {
    client: Client,
    /// The controller's own, where tokens are.
    namespace: String,
    kinds: Kinds,
    /// Places for processes that evaluate expressions.
    evaluations: Semaphore,
}

impl Asker {
    async fn ask_in_time(&self, owner: &Owner, gate: &Gate, run: Option<&Run>) -> Result<(), Held> {
        let asked = tokio::time::timeout(LIMIT, self.ask(owner, gate, run)).await;
        let asked = asked.unwrap_or_else(|_| Err(Held::Fails(format!("no answer in {} s", LIMIT.as_secs()))));
        let answer = match asked {
            // Not part of that time: others may be before it.
            Ok(Some(question)) => self.evaluate(gate, &question).await,
            Ok(None) => Ok(()),
            Err(held) => Err(held),
        };
        answer.map_err(cut)
    }

    /// What is left to be evaluated, if anything is.
    async fn ask(&self, owner: &Owner, gate: &Gate, run: Option<&Run>) -> Result<Option<Question>, Held> {
        let answer = match (gate, run) {
            (Gate { job: Some(job), .. }, Some(run)) => {
                return job::ask(self, owner, gate, job, run).await.map(|()| None);
            }
            (Gate { http: Some(http), .. }, _) => http::ask(self, http).await,
            (Gate { object: Some(object), .. }, _) => object::ask(self, object).await,
            (Gate { prometheus: Some(prometheus), .. }, _) => prometheus::ask(self, prometheus).await,
            _ => Err(anyhow!("it says nothing that this controller could ask for")),
        };
        answer.map_err(|error| fails(&error))
    }

    async fn evaluate(&self, gate: &Gate, question: &Question) -> Result<(), Held> {
        let Some(answer) = cel::evaluate(&self.evaluations, question).await else {
            return Err(Held::Runs("it waits for other expressions".to_owned()));
        };
        answer.map_err(|error| {
            let titled = match &gate.object {
                Some(object) => error.context(object::title(object)),
                None => error,
            };
            fails(&titled)
        })
    }
}

fn fails(error: &anyhow::Error) -> Held {
    Held::Fails(format!("{error:#}"))
}

/// What others say may be of any length, and goes into objects and Events.
fn cut(held: Held) -> Held {
    match held {
        Held::Runs(sentence) => Held::Runs(cel::short(&sentence, SENTENCE)),
        Held::Fails(sentence) => Held::Fails(cel::short(&sentence, SENTENCE)),
    }
}

/// What the API server refused; where rights are missing, what gives them.
fn explain(error: kube::Error, verb: &str, resource: &ApiResource, namespace: Option<&str>) -> anyhow::Error {
    let ApiResource { plural, group, .. } = resource;
    let what = if group.is_empty() { plural.clone() } else { format!("{plural}.{group}") };
    match error {
        kube::Error::Api(status) if status.code == 403 => {
            let (place, role) =
                namespace.map_or((String::new(), "ClusterRole"), |namespace| (format!(" in {namespace}"), "Role"));
            anyhow!(
                "{}; bind a {role} to node-controller that lets it {verb} {what}{place}, or add a ClusterRole with the label \
                 nodelet.dev/aggregate-to-gates: \"true\"",
                status.message
            )
        }
        kube::Error::Api(status) => anyhow!("the API server refuses to {verb} {what}: {}", status.message),
        error => anyhow::Error::new(error).context(format!("asking the API server to {verb} {what}")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use futures::FutureExt;

    #[test]
    fn sentences_are_cut() {
        let long = "ä".repeat(600);
        let expected = format!("{}…", "ä".repeat(500));
        assert_eq!(cut(Held::Fails(long.clone())), Held::Fails(expected.clone()));
        assert_eq!(cut(Held::Runs(long)), Held::Runs(expected));
        assert_eq!(cut(Held::Fails("short".into())), Held::Fails("short".into()));
    }

    #[tokio::test]
    async fn a_node_that_waits_wakes_who_asks() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let answer = |second| Answer { asked: at(second), found: Ok(()) };
        let owner = Owner { set: "s".into(), uid: "u".into() };
        let handle = tokio::spawn(async {}).abort_handle();
        let wake = Arc::new(Notify::new());
        let (gate, asked, needed) = (Gate::default(), None, None);
        let mut task = Task { number: 0, owner, gate, asked, answer: None, needed, wake: Arc::clone(&wake), handle };
        let is_woken = || wake.notified().now_or_never().is_some();
        task.need(Some(at(5)));
        assert!(!is_woken(), "it is about to ask for the first time");
        task.asked = Some(at(6));
        task.need(Some(at(5)));
        assert!(!is_woken());
        assert!(task.take(&answer(6)) && !task.take(&answer(7)), "the same again is no news");
        task.need(Some(at(10)));
        assert!(is_woken(), "another node came so far");
        assert!(task.take(&answer(11)) && !task.take(&answer(12)), "the same is news to a node that waits for it");
        task.need(None);
        assert!(!is_woken());
    }
}
