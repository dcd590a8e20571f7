//! The API server's audit log: who asked for what, and when.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;

use crate::Slot;

/// An audit log that an API server is to write; give [`Self::flags`] to [`super::Cluster::start_with`].
#[derive(Debug)]
pub struct Audit {
    policy: PathBuf,
    log: PathBuf,
}

/// A request, as the API server saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// When it came.
    pub at: Timestamp,
    /// Who sent it.
    pub user: String,
    /// The verb of the API, such as `watch`.
    pub verb: String,
    /// The resource with its subresource, such as `nodestates/status`.
    pub resource: String,
    /// The HTTP status.
    pub code: u16,
    /// Whether the answer goes on, as that of a watch does.
    pub open: bool,
}

/// What a line of the log is read for.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    #[serde(rename = "auditID")]
    id: String,
    stage: String,
    verb: String,
    user: User,
    object_ref: Option<Object>,
    response_status: Option<Response>,
    request_received_timestamp: Timestamp,
}

#[derive(Deserialize)]
struct User {
    username: String,
}

#[derive(Deserialize)]
struct Object {
    resource: String,
    #[serde(default)]
    subresource: String,
}

#[derive(Deserialize)]
struct Response {
    #[serde(default)]
    code: u16,
}

impl Audit {
    /// A log of the requests of these users and of everybody in these groups, at the API server of a slot.
    pub fn of(slot: &Slot, users: &[&str], groups: &[&str]) -> Result<Self> {
        let dir = slot.dir().join("cluster");
        fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
        let audit = Self { policy: dir.join("audit-policy.yaml"), log: dir.join("audit.log") };
        let policy = json!({
            "apiVersion": "audit.k8s.io/v1",
            "kind": "Policy",
            // A watch says when it starts and when it ends; everything else only when it is answered.
            "omitStages": ["RequestReceived"],
            "rules": [
                {"level": "Metadata", "users": users},
                {"level": "Metadata", "userGroups": groups},
                {"level": "None"},
            ],
        });
        fs::write(&audit.policy, policy.to_string()).with_context(|| format!("writing {}", audit.policy.display()))?;
        Ok(audit)
    }

    /// The API server's flags. By default it writes a line before it answers.
    pub fn flags(&self) -> Vec<(&'static str, String)> {
        vec![
            ("audit-policy-file", self.policy.display().to_string()),
            ("audit-log-path", self.log.display().to_string()),
        ]
    }

    /// All requests up to now, in the order in which they came.
    pub fn requests(&self) -> Result<Vec<Request>> {
        let text = fs::read_to_string(&self.log).with_context(|| format!("reading {}", self.log.display()))?;
        parse(&text).with_context(|| format!("reading {}", self.log.display()))
    }

    /// The requests since a moment.
    pub fn since(&self, moment: Timestamp) -> Result<Vec<Request>> {
        let mut all = self.requests()?;
        all.retain(|request| request.at >= moment);
        Ok(all)
    }
}

/// Numbers of requests by verb and resource.
pub fn counted<'a>(requests: impl IntoIterator<Item = &'a Request>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for request in requests {
        *counts.entry(format!("{} {}", request.verb, request.resource)).or_default() += 1;
    }
    counts
}

fn parse(text: &str) -> Result<Vec<Request>> {
    let mut found: BTreeMap<String, Request> = BTreeMap::new();
    // The last line may be half written.
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    for line in whole.lines() {
        let line: Line = serde_json::from_str(line).with_context(|| format!("a line is no event: {line}"))?;
        let resource = line.object_ref.map(|object| match object.subresource.as_str() {
            "" => object.resource,
            subresource => format!("{}/{subresource}", object.resource),
        });
        let request = Request {
            at: line.request_received_timestamp,
            user: line.user.username,
            verb: line.verb,
            resource: resource.unwrap_or_default(),
            code: line.response_status.map_or(0, |response| response.code),
            open: line.stage == "ResponseStarted",
        };
        // A later stage of the same request stands for it.
        found.insert(line.id, request);
    }
    let mut requests: Vec<Request> = found.into_values().collect();
    requests.sort_by_key(|request| request.at);
    Ok(requests)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_is_one_request_that_is_open_until_it_ends() {
        let line = |id: &str, stage: &str, second: u8| {
            format!(
                r#"{{"auditID": "{id}", "stage": "{stage}", "verb": "watch", "user": {{"username": "u"}},
                "objectRef": {{"resource": "nodestates", "subresource": "status"}}, "responseStatus": {{"code": 200}},
                "requestReceivedTimestamp": "2026-01-01T00:00:0{second}.000001Z"}}"#
            )
            .replace('\n', "")
        };
        let started = line("b", "ResponseStarted", 2);
        let text = [line("a", "ResponseStarted", 3), started, line("a", "ResponseComplete", 3), "{".to_owned()];
        let requests = parse(&text.join("\n")).unwrap();
        assert_eq!(requests.iter().map(|request| request.open).collect::<Vec<_>>(), [true, false]);
        assert_eq!(counted(&requests)["watch nodestates/status"], 2);
    }
}
