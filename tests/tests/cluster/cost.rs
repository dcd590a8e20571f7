//! What nodes that have nothing to do cost the API server, by its audit log.

use std::thread;
use std::time::Duration;

use jiff::Timestamp;
use nodelet_api::objects::HEARTBEAT_SECONDS;
use testbed::cluster::audit::{Audit, Request, counted};
use testbed::wait::Seen;

use crate::scene::{CONTROLLER, Scene};

const SOON: Duration = Duration::from_secs(60);
/// What is said once everything is done comes within this time.
const QUIET: Duration = Duration::from_secs(5);
/// How long is looked.
const WINDOW: Duration = Duration::from_secs(20);
/// How long a watch lives before it is opened again, in seconds: what kube's watcher asks for.
const WATCH_SECONDS: u64 = 290;
/// A leader says so every 2 s, with a look at the lease before it.
const LEADER_PAUSE: Duration = Duration::from_secs(2);

#[test]
fn an_idle_node_costs_one_open_watch_and_a_heartbeat() {
    let (scene, audit) = Scene::audited();
    let names = ["cost-1", "cost-2"];
    // Its rights are there before the node, so that its first try is good.
    scene.node_objects(&names);
    scene.class("one");
    scene.set();
    scene.wait_for_rights(&names);
    let _nodes: Vec<_> = names.iter().map(|name| scene.node(name)).collect();
    scene.wait_until_applied(&names);
    wait_until_quiet(&audit);

    let from = Timestamp::now();
    // Time is what is measured here.
    thread::sleep(WINDOW);
    let (all, late) = (audit.requests().unwrap(), audit.since(from).unwrap());
    for name in names {
        let user = format!("nodelet:{name}");
        let whole: Vec<&Request> = all.iter().filter(|request| request.user == user).collect();
        let window: Vec<&Request> = late.iter().filter(|request| request.user == user).collect();
        println!("{name} since its first request: {:?}", counted(whole.iter().copied()));
        println!("{name} in {} s of rest: {:?}", WINDOW.as_secs(), counted(window.iter().copied()));
        let open: Vec<&&Request> = whole.iter().filter(|request| request.open).collect();
        assert!(open.len() == 1 && open[0].verb == "watch", "{open:?}");
        let lists = whole.iter().filter(|request| request.verb == "list").count();
        assert_eq!(lists, 1, "one list, before the watch: {whole:?}");
        assert!(window.iter().all(|request| is_heartbeat(request)), "nothing but a heartbeat: {window:?}");
        assert!(window.len() <= 1, "one heartbeat in {HEARTBEAT_SECONDS} s: {window:?}");
    }
    println!("so in 5 minutes: {} heartbeat, and a watch every {WATCH_SECONDS} s", 300 / HEARTBEAT_SECONDS);

    let controller: Vec<&Request> = late.iter().filter(|request| request.user == CONTROLLER).collect();
    println!("node-controller in {} s of rest: {:?}", WINDOW.as_secs(), counted(controller.iter().copied()));
    let (leases, others): (Vec<&Request>, Vec<&Request>) =
        controller.into_iter().partition(|request| request.resource == "leases" && request.verb != "watch");
    assert!(others.iter().all(|request| request.verb == "watch"), "nothing but its lease: {others:?}");
    let renewals = WINDOW.as_secs() / LEADER_PAUSE.as_secs() + 1;
    assert!(leases.len() as u64 <= 2 * renewals, "it looks at its lease, and renews it: {leases:?}");
}

fn is_heartbeat(request: &Request) -> bool {
    request.verb == "patch" && request.resource == "leases" && request.code < 300
}

/// Waits until nothing but leases was written for a while.
fn wait_until_quiet(audit: &Audit) {
    testbed::wait_until("the last reports", SOON, || {
        let all = audit.requests()?;
        let last = all.iter().rfind(|request| request.resource != "leases");
        let quiet = last.is_none_or(|last| Timestamp::now().duration_since(last.at).unsigned_abs() > QUIET);
        Ok(if quiet { Seen::Done(()) } else { Seen::not_yet(format!("{last:?}")) })
    })
    .unwrap();
}
