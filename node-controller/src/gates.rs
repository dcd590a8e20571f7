//! Gates of sets: asked while a set has something to do, and at no other time.

use crate::world::Gates;
use anyhow::{Context, bail, ensure};
use kube::api::DynamicObject;
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use nodelet_api::objects::{Gate, HttpGate, NodeSet, ObjectGate};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Notify, watch};

/// How often they are asked.
const PAUSE: Duration = Duration::from_secs(5);
/// How long one may take to answer.
const LIMIT: Duration = Duration::from_secs(5);

/// What asks them.
pub(crate) struct Gatekeeper {
    wanted: watch::Sender<BTreeMap<String, Vec<Gate>>>,
    found: Arc<Mutex<BTreeMap<String, Gates>>>,
}

impl Gatekeeper {
    pub(crate) fn start(client: &Client, changed: &Arc<Notify>) -> Self {
        let (wanted, mut told) = watch::channel(BTreeMap::<String, Vec<Gate>>::new());
        let found = Arc::new(Mutex::new(BTreeMap::new()));
        let (client, changed, results) = (client.clone(), Arc::clone(changed), Arc::clone(&found));
        tokio::spawn(async move {
            loop {
                let sets = told.borrow_and_update().clone();
                let mut all = BTreeMap::new();
                for (set, gates) in &sets {
                    let mut answers = BTreeMap::new();
                    for gate in gates {
                        answers.insert(gate.name.clone(), ask(&client, gate).await);
                    }
                    all.insert(set.clone(), Gates(answers));
                }
                let news = {
                    let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
                    std::mem::replace(&mut *results, all.clone()) != all
                };
                if news {
                    changed.notify_one();
                }
                // Without gates there is nothing to ask again.
                let again = async {
                    if sets.is_empty() { std::future::pending().await } else { tokio::time::sleep(PAUSE).await }
                };
                tokio::select! {
                    () = again => {}
                    ended = told.changed() => if ended.is_err() { return },
                }
            }
        });
        Self { wanted, found }
    }

    /// Says which sets have something to do.
    pub(crate) fn watch(&self, sets: &BTreeMap<String, Arc<NodeSet>>) {
        let busy = |set: &NodeSet| {
            set.status
                .as_ref()
                .is_some_and(|status| !status.slots.is_empty() || status.updated_replicas < status.replicas)
        };
        let wanted: BTreeMap<String, Vec<Gate>> = sets
            .iter()
            .filter(|(_, set)| !set.spec.health.gates.is_empty() && busy(set))
            .map(|(name, set)| (name.clone(), set.spec.health.gates.clone()))
            .collect();
        self.wanted.send_if_modified(|known| {
            let differs = *known != wanted;
            *known = wanted;
            differs
        });
    }

    /// What was found. A gate that was not asked yet is not passed.
    pub(crate) fn found(&self, sets: &BTreeMap<String, Arc<NodeSet>>) -> BTreeMap<String, Gates> {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let of = |name: &String, gate: &Gate| {
            let known = found.get(name).and_then(|gates| gates.0.get(&gate.name)).cloned();
            known.unwrap_or_else(|| Err("it was not looked at yet".to_owned()))
        };
        let gates = |(name, set): (&String, &Arc<NodeSet>)| {
            let answers = set.spec.health.gates.iter().map(|gate| (gate.name.clone(), of(name, gate))).collect();
            (name.clone(), Gates(answers))
        };
        sets.iter().filter(|(_, set)| !set.spec.health.gates.is_empty()).map(gates).collect()
    }
}

async fn ask(client: &Client, gate: &Gate) -> Result<(), String> {
    let asked = async {
        match (&gate.http, &gate.object) {
            (Some(http), _) => http_status(http).await,
            (None, Some(object)) => condition(client, object).await,
            (None, None) => Ok(()),
        }
    };
    match tokio::time::timeout(LIMIT, asked).await {
        Ok(answer) => answer.map_err(|error| format!("{error:#}")),
        Err(_) => Err(format!("no answer in {} s", LIMIT.as_secs())),
    }
}

/// Asks an address, by the oldest and plainest form of HTTP.
async fn http_status(gate: &HttpGate) -> anyhow::Result<()> {
    let rest = gate.url.strip_prefix("http://").context("only http:// can be asked")?;
    let (host, path) =
        rest.split_once('/').map_or((rest, String::from("/")), |(host, path)| (host, format!("/{path}")));
    let address = if host.rsplit(']').next().is_some_and(|end| end.contains(':')) {
        host.to_owned()
    } else {
        format!("{host}:80")
    };
    let mut stream = TcpStream::connect(&address).await.with_context(|| format!("connecting to {address}"))?;
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: node-controller\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.context("asking")?;
    let mut answer = [0; 64];
    let mut read = 0;
    while read < answer.len() && !answer[..read].contains(&b'\n') {
        match stream.read(&mut answer[read..]).await.context("reading the answer")? {
            0 => break,
            more => read += more,
        }
    }
    let line = String::from_utf8_lossy(&answer[..read]);
    let status: u16 =
        line.split(' ').nth(1).and_then(|word| word.trim().parse().ok()).context("the answer is no HTTP")?;
    ensure!(status == gate.status, "{} answers with {status}, not {}", gate.url, gate.status);
    Ok(())
}

/// Asks whether a condition of an object is true.
async fn condition(client: &Client, gate: &ObjectGate) -> anyhow::Result<()> {
    let (group, version) = gate.api_version.rsplit_once('/').unwrap_or(("", &gate.api_version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &gate.kind));
    let api: Api<DynamicObject> = match &gate.namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let object = api.get(&gate.name).await.with_context(|| format!("reading {} {}", gate.kind, gate.name))?;
    let conditions = object.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let Some(found) = conditions.iter().find(|one| one["type"] == gate.condition.as_str()) else {
        bail!("{} {} has no condition {}", gate.kind, gate.name, gate.condition);
    };
    let message = found["message"].as_str().unwrap_or_default();
    ensure!(found["status"] == "True", "{} {} is not {}: {message}", gate.kind, gate.name, gate.condition);
    Ok(())
}
