//! Many nodes lose their API server in the same moment, and must not come back in the same moment.
//!
//! What follows the cluster is nodelet's own [`Follower`], two hundred times in this process; nothing is applied.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use nodelet::cluster::{Follower, News, Report};
use nodelet::identity::Identity;
use nodelet::root::Root;
use nodelet::settings;
use nodelet::source::cluster::kept;
use nodelet::store::Store;
use nodelet_api::objects::{Applied, time_text};
use testbed::cluster::audit::{Request, counted};
use testbed::wait::Seen;
use tokio::sync::{mpsc, watch};

use crate::scene::Scene;

const NODES: usize = 200;
/// For the controller to make two hundred of everything, on a busy machine.
const LONG: Duration = Duration::from_secs(180);
/// How far apart they must come back, at least.
const SPREAD: Duration = Duration::from_secs(10);
const SECOND: jiff::SignedDuration = jiff::SignedDuration::from_secs(1);
/// A session is a list and a watch, then perhaps a revision, a report and a heartbeat.
const SESSION: usize = 5;

/// What the simulated nodelets came to.
#[derive(Debug, Clone, Default)]
struct Progress {
    /// The revision that the node has.
    revision: String,
    /// How often its nodelet lost the cluster, or failed to reach it.
    failures: usize,
}

type Board = Arc<Mutex<BTreeMap<String, Progress>>>;

#[test]
fn two_hundred_nodes_come_back_one_after_another() {
    let (scene, audit) = Scene::audited();
    let names: Vec<String> = (0..NODES).map(|number| format!("herd-{number:03}")).collect();
    let nodes: Vec<&str> = names.iter().map(String::as_str).collect();
    let start = Instant::now();
    scene.node_objects(&nodes);
    scene.class("one");
    scene.set();
    scene.wait_for_rights_within(&nodes, LONG);
    println!("{NODES} nodes had their states and rights after {} ms", start.elapsed().as_millis());

    let board = Board::default();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for node in &nodes {
        runtime.spawn(simulate(follower(&scene, node), Arc::clone(&board)));
    }
    let first = wait_for_change(&board, "");
    change(&scene, &board, &first, "two");

    let before = scene.cluster.api_server.memory().unwrap();
    forget_failures(&board);
    scene.cluster.api_server.kill().unwrap();
    let killed = Timestamp::now();
    scene.cluster.api_server.start().unwrap();
    scene.cluster.wait_until_ready().unwrap();
    println!("the API server is back after {} ms", Timestamp::now().duration_since(killed).as_millis());
    testbed::wait_until("all nodes to watch again", LONG, || {
        let count = watchers(&audit.since(killed)?).len();
        Ok(if count == NODES { Seen::Done(()) } else { Seen::not_yet(format!("{count} watch")) })
    })
    .unwrap();

    let requests = nodelets(audit.since(killed).unwrap());
    let tried = board.lock().unwrap_or_else(PoisonError::into_inner).values().map(|one| one.failures).max();
    let came = first_requests(&requests);
    let (first, last) = (came.iter().min().unwrap(), came.iter().max().unwrap());
    let spread = last.duration_since(*first).unsigned_abs();
    let peak = peak(requests.iter());
    let hottest = nodes.iter().map(|node| peak_of(&requests, node)).max().unwrap();
    println!("requests after the restart: {:?}", counted(&requests));
    println!(
        "of these refused, while it started: {:?}",
        counted(requests.iter().filter(|request| request.code >= 400))
    );
    let back = requests.iter().filter(|request| request.open).map(|request| request.at).max().unwrap();
    println!("the last node watched again {} ms after the kill", back.duration_since(killed).as_millis());
    println!("first requests spread over {} ms; at most {peak} requests in a second", spread.as_millis());
    println!("of one node at most {hottest} requests in a second, and {tried:?} failures");
    assert!(spread >= SPREAD, "all came back within {spread:?}");
    assert!(hottest <= SESSION, "a node asked {hottest} times in a second");

    let known = wait_for_change(&board, "");
    change(&scene, &board, &known, "three");
    let after = scene.cluster.api_server.memory().unwrap();
    println!("the API server's memory: {} MB before, {} MB after", before / 1_000_000, after / 1_000_000);
}

fn follower(scene: &Scene, node: &str) -> Follower {
    let directory = scene.cluster.slot().dir().join("herd").join(node);
    std::fs::create_dir_all(&directory).unwrap();
    let kubeconfig = scene.cluster.kubeconfig_for(&format!("nodelet:{node}"), &["nodelet:nodes"]).unwrap();
    std::fs::write(directory.join("kubeconfig"), kubeconfig).unwrap();
    let root = Root::at(directory);
    // The kubeconfig's credential as it is: no certificate has to be asked for.
    let settings = settings::Cluster {
        kubeconfig: "/kubeconfig".into(),
        identity: settings::Identity::Kubelet,
        ..settings::Cluster::default()
    };
    Follower {
        identity: Identity::new(&root, node, &settings),
        root,
        namespace: settings.namespace,
        node: node.to_owned(),
    }
}

/// Follows, and says of everything that is asked for that it is done.
async fn simulate(follower: Follower, board: Board) {
    let (root, node) = (follower.root.clone(), follower.node.clone());
    let (heard, mut news) = mpsc::channel(16);
    let (reports, told) = watch::channel(Some(Report::default()));
    tokio::spawn(follower.follow(heard, told));
    while let Some(news) = news.recv().await {
        let record = |change: &dyn Fn(&mut Progress)| {
            change(board.lock().unwrap_or_else(PoisonError::into_inner).entry(node.clone()).or_default());
        };
        match news {
            News::Asked => {
                let asked = kept(&Store::open(&root).unwrap()).unwrap().unwrap();
                record(&|progress| progress.revision.clone_from(&asked.revision));
                let applied =
                    Applied { revision: asked.revision, at: time_text(Timestamp::now()), ..Applied::default() };
                reports.send_replace(Some(Report { applied: Some(applied), ..Report::default() }));
            }
            News::Away(_) => record(&|progress| progress.failures += 1),
            News::Reached | News::NotUnderstood(_) => {}
        }
    }
}

/// Changes the class, and waits until all nodes have and report the new revision.
fn change(scene: &Scene, board: &Board, from: &str, content: &str) {
    let start = Instant::now();
    scene.class(content);
    let revision = wait_for_change(board, from);
    let reached = start.elapsed();
    testbed::wait_until("the nodes' reports", LONG, || {
        let columns = "jsonpath={range .items[*]}{.status.applied.revision}{\"\\n\"}{end}";
        let found = scene.cluster.kubectl(&["get", "nodestates", "-o", columns]).unwrap_or_default();
        let count = found.lines().filter(|line| *line == revision).count();
        Ok(if count == NODES { Seen::Done(()) } else { Seen::not_yet(format!("{count} of them")) })
    })
    .unwrap();
    let (reached, reported) = (reached.as_millis(), start.elapsed().as_millis());
    println!("class {content:?} reached {NODES} nodes after {reached} ms, and was reported back after {reported} ms");
}

/// Waits until all nodes have the same revision, and not this one; which it is.
fn wait_for_change(board: &Board, from: &str) -> String {
    testbed::wait_until("all nodes to have another revision", LONG, || {
        let board = board.lock().unwrap_or_else(PoisonError::into_inner);
        let revisions: BTreeSet<&str> = board.values().map(|one| one.revision.as_str()).collect();
        let only = revisions.first().filter(|one| revisions.len() == 1 && !one.is_empty() && **one != from);
        Ok(match only {
            Some(revision) if board.len() == NODES => Seen::Done((*revision).to_owned()),
            _ => Seen::not_yet(format!("{} nodes with {revisions:?}", board.len())),
        })
    })
    .unwrap()
}

fn forget_failures(board: &Board) {
    board.lock().unwrap_or_else(PoisonError::into_inner).values_mut().for_each(|one| one.failures = 0);
}

fn nodelets(mut requests: Vec<Request>) -> Vec<Request> {
    requests.retain(|request| request.user.starts_with("nodelet:"));
    requests
}

/// Who has an open watch.
fn watchers(requests: &[Request]) -> BTreeSet<&str> {
    let open = requests.iter().filter(|request| request.open && request.user.starts_with("nodelet:"));
    open.map(|request| request.user.as_str()).collect()
}

/// When each of them came first.
fn first_requests(requests: &[Request]) -> Vec<Timestamp> {
    let mut first: BTreeMap<&str, Timestamp> = BTreeMap::new();
    for request in requests {
        first.entry(&request.user).or_insert(request.at);
    }
    first.into_values().collect()
}

/// The most requests within any second; they are in the order of time.
fn peak<'a>(requests: impl Iterator<Item = &'a Request>) -> usize {
    let times: Vec<Timestamp> = requests.map(|request| request.at).collect();
    let starting =
        |first: usize| times[first..].iter().take_while(|at| at.duration_since(times[first]) < SECOND).count();
    (0..times.len()).map(starting).max().unwrap_or_default()
}

fn peak_of(requests: &[Request], node: &str) -> usize {
    let user = format!("nodelet:{node}");
    peak(requests.iter().filter(|request| request.user == user))
}
