//! A client that keeps asking the pods of a Service, and keeps account of every answer.
//!
//! It stands for a kube-proxy and the clients behind it, because there is none here: it takes the endpoints from the
//! Service's own `EndpointSlice`s by a watch, those that are ready and not on their way out, one after the other. Each
//! request is a connection of its own. Nothing is ever tried again: what a person would have seen is counted.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use futures::StreamExt;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use kube::runtime::WatchStreamExt;
use kube::runtime::reflector;
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::Cluster;
use super::aside::{Aside, Sign};
use crate::wait::{Seen, wait_until};

/// 100 requests in a second.
const PAUSE: Duration = Duration::from_millis(10);
/// An answer that takes longer has failed. Usually it takes a millisecond; the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(3);
/// From the start to the first answer: a watch has to begin.
const START_LIMIT: Duration = Duration::from_secs(30);
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: service\r\nConnection: close\r\n\r\n";

/// Requests that go on until they are ended.
#[derive(Debug)]
pub struct Requests {
    tally: Arc<Mutex<Tally>>,
    aside: Aside,
}

/// What became of all requests so far.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// How many were sent; those under way are among them.
    pub sent: usize,
    /// Those that failed, each.
    pub failures: Vec<Failure>,
    /// What the pods that answered are called.
    pub pods: BTreeSet<String>,
    /// How long each answer took.
    took: Vec<Duration>,
}

/// A request that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// How long after the first request it was sent.
    pub at: Duration,
    /// Who was asked.
    pub endpoint: Option<SocketAddr>,
    /// Why it failed.
    pub why: String,
}

impl Requests {
    /// Begins to ask the pods of a Service of the namespace `default`, and waits for the first answer. The host must have a
    /// way to them, see [`Cluster::route_to_pods`].
    pub fn start(cluster: &Cluster, service: &str) -> Result<Self> {
        let tally = Arc::<Mutex<Tally>>::default();
        let (noted, name) = (Arc::clone(&tally), service.to_owned());
        let aside =
            Aside::start(cluster, move |client, ending| async move { ask(client, &name, &noted, ending).await })?;
        let requests = Self { tally, aside };
        wait_until(&format!("an answer of the service {service}"), START_LIMIT, || {
            let tally = requests.so_far();
            Ok(if tally.took.is_empty() { Seen::not_yet(tally) } else { Seen::Done(()) })
        })?;
        Ok(requests)
    }

    /// The account up to now.
    pub fn so_far(&self) -> Tally {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sends no more, waits for the answers under way, and returns the whole account.
    pub fn end(mut self) -> Result<Tally> {
        self.aside.end().context("sending requests")?;
        Ok(self.so_far())
    }
}

impl Tally {
    /// The answer that took longest.
    pub fn slowest(&self) -> Duration {
        self.took.iter().max().copied().unwrap_or_default()
    }

    /// So long most answers took at most: half of them, or 99 of 100.
    fn within(&self, percent: usize) -> Duration {
        let mut sorted = self.took.clone();
        sorted.sort_unstable();
        let rank = (sorted.len() * percent).div_ceil(100);
        sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default()
    }

    fn note(&mut self, at: Duration, endpoint: Option<SocketAddr>, took: Duration, outcome: Result<String>) {
        match outcome {
            Ok(pod) => {
                self.took.push(took);
                self.pods.insert(pod);
            }
            Err(error) => self.failures.push(Failure { at, endpoint, why: format!("{error:#}") }),
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let milliseconds = |time: Duration| time.as_secs_f32() * 1000.0;
        write!(
            f,
            "{} requests, {} failed; {} pods answered, half of the time within {:.1} ms, 99 of 100 times within {:.1} ms, \
             the slowest in {:.0} ms",
            self.sent,
            self.failures.len(),
            self.pods.len(),
            milliseconds(self.within(50)),
            milliseconds(self.within(99)),
            milliseconds(self.slowest()),
        )
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let asked = self.endpoint.map_or_else(|| "nobody".to_owned(), |endpoint| endpoint.to_string());
        write!(f, "after {:.1} s, asking {asked}: {}", self.at.as_secs_f32(), self.why)
    }
}

async fn ask(client: Client, service: &str, tally: &Arc<Mutex<Tally>>, mut ending: Sign) -> Result<()> {
    let (slices, writer) = reflector::store::<EndpointSlice>();
    let config = watcher::Config::default().labels(&format!("kubernetes.io/service-name={service}"));
    let events = watcher(Api::namespaced(client, "default"), config).default_backoff().reflect(writer);
    tokio::spawn(events.for_each(|_| std::future::ready(())));
    slices.wait_until_ready().await.context("watching EndpointSlices")?;

    let start = Instant::now();
    let mut ticks = interval(PAUSE);
    // After a moment in which this machine did nothing, no request is made up for.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut under_way = JoinSet::new();
    let mut turn = 0;
    loop {
        tokio::select! {
            _ = &mut ending => break,
            _ = ticks.tick() => {}
        }
        let known = endpoints(slices.state().iter().map(AsRef::as_ref));
        // The slices are written a moment after the first pods are ready; from then on somebody must always be there.
        if turn == 0 && known.is_empty() {
            continue;
        }
        let endpoint = known.get(turn % known.len().max(1)).copied();
        turn += 1;
        tally.lock().unwrap_or_else(PoisonError::into_inner).sent += 1;
        let (tally, at) = (Arc::clone(tally), start.elapsed());
        under_way.spawn(async move {
            let sent = Instant::now();
            let outcome = request(endpoint).await;
            let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
            tally.note(at, endpoint, sent.elapsed(), outcome);
        });
        while under_way.try_join_next().is_some() {}
    }
    under_way.join_all().await;
    Ok(())
}

/// Where a Service's requests go to: pods that are ready, and not on their way out.
fn endpoints<'a>(slices: impl Iterator<Item = &'a EndpointSlice>) -> Vec<SocketAddr> {
    let mut found = BTreeSet::new();
    for slice in slices {
        let Some(port) = slice.ports.iter().flatten().find_map(|port| u16::try_from(port.port?).ok()) else { continue };
        for endpoint in slice.endpoints.iter().filter(|endpoint| serves(endpoint)) {
            let addresses = endpoint.addresses.iter().filter_map(|address| address.parse::<IpAddr>().ok());
            found.extend(addresses.map(|address| SocketAddr::new(address, port)));
        }
    }
    found.into_iter().collect()
}

/// What is not said means, by the API's own words: ready, and not terminating.
fn serves(endpoint: &Endpoint) -> bool {
    endpoint.conditions.as_ref().is_none_or(|is| is.ready.unwrap_or(true) && !is.terminating.unwrap_or(false))
}

/// One request; the answer is what the pod is called.
async fn request(endpoint: Option<SocketAddr>) -> Result<String> {
    let Some(endpoint) = endpoint else { bail!("the service has no endpoint that is ready") };
    let talk = async {
        let mut stream = TcpStream::connect(endpoint).await.context("connecting")?;
        stream.write_all(REQUEST).await.context("sending the request")?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.context("reading the answer")?;
        page(&String::from_utf8_lossy(&answer))
    };
    match timeout(PATIENCE, talk).await {
        Ok(outcome) => outcome,
        Err(_) => bail!("no whole answer in {} s", PATIENCE.as_secs()),
    }
}

/// The page in an answer, which must be whole.
fn page(answer: &str) -> Result<String> {
    let (head, body) = answer.split_once("\r\n\r\n").context("the answer ends before its page")?;
    let mut lines = head.lines();
    let status = lines.next().unwrap_or_default();
    ensure!(status.split(' ').nth(1) == Some("200"), "the answer is {status:?}");
    let length = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    ensure!(length.is_none_or(|length| length == body.len()), "the answer ends after {} bytes", body.len());
    Ok(body.trim().to_owned())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn requests_go_to_pods_that_are_ready_and_stay() {
        let endpoint =
            |address: &str, conditions: serde_json::Value| json!({"addresses": [address], "conditions": conditions});
        let slice: EndpointSlice = serde_json::from_value(json!({
            "addressType": "IPv4",
            "endpoints": [
                endpoint("10.1.0.2", json!({"ready": true, "serving": true, "terminating": false})),
                endpoint("10.1.0.1", json!({})),
                endpoint("10.1.0.3", json!({"ready": false, "serving": false, "terminating": false})),
                endpoint("10.1.0.4", json!({"ready": true, "serving": true, "terminating": true})),
            ],
            "ports": [{"port": 8080}],
        }))
        .unwrap();
        let portless = EndpointSlice { ports: None, ..slice.clone() };
        let found: Vec<String> = endpoints([&slice, &portless].into_iter()).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["10.1.0.1:8080", "10.1.0.2:8080"]);
    }

    #[test]
    fn only_a_whole_page_is_an_answer() {
        let cases = [
            ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nme\n", Ok("me")),
            ("HTTP/1.0 200 OK\r\n\r\nme\n", Ok("me")),
            ("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nme\n", Err("the answer ends after 3 bytes")),
            ("HTTP/1.1 503 No\r\n\r\n", Err("the answer is \"HTTP/1.1 503 No\"")),
            ("", Err("the answer ends before its page")),
        ];
        for (answer, wanted) in cases {
            let found = page(answer).map_err(|error| error.to_string());
            assert_eq!(found.as_deref().map_err(String::as_str), wanted, "{answer:?}");
        }
    }

    #[test]
    fn every_request_is_accounted_for() {
        let mut tally = Tally { sent: 101, ..Tally::default() };
        for number in 1..=100 {
            tally.note(Duration::ZERO, None, Duration::from_millis(number), Ok(format!("pod-{}", number % 4)));
        }
        let endpoint = Some("10.1.0.1:8080".parse().unwrap());
        tally.note(Duration::from_millis(1500), endpoint, Duration::ZERO, page(""));
        assert_eq!(
            tally.to_string(),
            "101 requests, 1 failed; 4 pods answered, half of the time within 50.0 ms, 99 of 100 times within 99.0 ms, the \
             slowest in 100 ms"
        );
        let failure = "after 1.5 s, asking 10.1.0.1:8080: the answer ends before its page";
        assert_eq!(tally.failures[0].to_string(), failure);
        assert_eq!(Tally::default().slowest(), Duration::ZERO);
    }
}
