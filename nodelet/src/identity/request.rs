//! Asks the cluster for a certificate.

use super::certificate::{Certificate, fingerprint};
use jiff::Timestamp;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::api::PostParams;
use kube::{Api, Client};
use nodelet_api::objects::{NODES_GROUP, SIGNER, USAGES};
use rcgen::{CertificateParams, DnType, KeyPair};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::fmt;
use std::time::{Duration, Instant};

pub use nodelet_api::objects::USER_PREFIX;

/// How long an answer is waited for in one go; then it is said, and waited for again.
const LIMIT: Duration = Duration::from_secs(600);
/// Between two looks: first soon, because a controller answers in tens of milliseconds.
const FIRST_LOOK: Duration = Duration::from_millis(100);
const LAST_LOOK: Duration = Duration::from_secs(15);

/// What kept a certificate from being issued.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// The request could not be made.
    #[error("making a request for a certificate: {0}")]
    Make(#[from] rcgen::Error),
    /// The API server did not take it or show it.
    #[error("{what} the certificate request {name}: {source}")]
    Api {
        /// What was tried.
        what: &'static str,
        /// The request.
        name: String,
        /// Why not.
        source: Box<kube::Error>,
    },
    /// The controller said no.
    #[error("the certificate request {name} was denied: {message}")]
    Denied {
        /// The request.
        name: String,
        /// Its words.
        message: String,
    },
    /// The signer failed.
    #[error("the certificate request {name} failed: {message}")]
    Failed {
        /// The request.
        name: String,
        /// Its words.
        message: String,
    },
    /// Nobody answered.
    #[error("the certificate request {name} is {state} for {} s: {}", LIMIT.as_secs(), advice(state))]
    Late {
        /// The request.
        name: String,
        /// How far it is.
        state: &'static str,
    },
    /// What was issued can't be read.
    #[error("the certificate that was issued for {name} can't be read")]
    Unreadable {
        /// The request.
        name: String,
    },
}

const UNANSWERED: &str = "not approved";
const UNSIGNED: &str = "approved and not signed";

fn advice(state: &str) -> &'static str {
    if state == UNSIGNED {
        "does this cluster's signer issue client certificates? If it does not, set `cluster.identity = \"kubelet\"`"
    } else {
        "does node-controller run, and does a NodeSet select this node?"
    }
}

/// The subject's user for a node.
pub fn subject(node: &str) -> String {
    format!("{USER_PREFIX}{node}")
}

/// A request with its key.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Pending {
    node: String,
    name: String,
    key: String,
}

impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never the key.
        write!(f, "request {}", self.name)
    }
}

impl Pending {
    /// A request with a new key.
    pub(super) fn new(node: &str) -> Result<Self, CertificateError> {
        let key = KeyPair::generate()?;
        // Named by its key: made twice, it is the same one.
        let short: String = node.chars().take(200).collect();
        let name = format!("nodelet-{short}-{}", &fingerprint(&key)[..12]);
        Ok(Self { node: node.to_owned(), name, key: key.serialize_pem() })
    }

    pub(super) fn is_for(&self, node: &str) -> bool {
        self.node == node
    }

    /// Sends it, if that was not done yet, and waits for what becomes of it.
    pub(super) async fn issue(
        &self,
        client: Client,
        lifetime: Option<Duration>,
        tell: &(dyn Fn(String) + Sync),
    ) -> Result<Certificate, CertificateError> {
        let api: Api<CertificateSigningRequest> = Api::all(client);
        let start = Instant::now();
        let mut wait = FIRST_LOOK;
        self.send(&api, lifetime).await?;
        loop {
            let state = match self.look(&api).await? {
                Seen::Issued(pem) => {
                    let certificate = Certificate::new(&pem, &self.key, Timestamp::now());
                    return certificate.ok_or_else(|| CertificateError::Unreadable { name: self.name.clone() });
                }
                // Requests that nobody answers are removed after a day.
                Seen::Gone => {
                    self.send(&api, lifetime).await?;
                    UNANSWERED
                }
                Seen::Waits(state) => state,
            };
            if start.elapsed() > LIMIT {
                return Err(CertificateError::Late { name: self.name.clone(), state });
            }
            if wait > Duration::from_secs(1) {
                tell(format!("the certificate request {}, which is {state}: {}", self.name, advice(state)));
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 3 / 2).min(LAST_LOOK);
        }
    }

    async fn send(
        &self,
        api: &Api<CertificateSigningRequest>,
        lifetime: Option<Duration>,
    ) -> Result<(), CertificateError> {
        use base64::Engine as _;
        let key = KeyPair::from_pem(&self.key)?;
        let mut parameters = CertificateParams::new(Vec::new())?;
        parameters.distinguished_name = rcgen::DistinguishedName::new();
        parameters.distinguished_name.push(DnType::OrganizationName, NODES_GROUP);
        parameters.distinguished_name.push(DnType::CommonName, subject(&self.node));
        let request = parameters.serialize_request(&key)?.pem()?;
        let mut spec = json!({
            "request": base64::engine::general_purpose::STANDARD.encode(request),
            "signerName": SIGNER,
            "usages": USAGES,
        });
        if let Some(lifetime) = lifetime {
            spec["expirationSeconds"] = json!(lifetime.as_secs());
        }
        let object = json!({"metadata": {"name": self.name}, "spec": spec});
        let object: CertificateSigningRequest =
            serde_json::from_value(object).map_err(|error| self.failed("making", kube::Error::SerdeError(error)))?;
        match api.create(&PostParams::default(), &object).await {
            // It was sent before a restart.
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            Err(error) => Err(self.failed("sending", error)),
            Ok(_) => Ok(()),
        }
    }

    async fn look(&self, api: &Api<CertificateSigningRequest>) -> Result<Seen, CertificateError> {
        let Some(request) = api.get_opt(&self.name).await.map_err(|error| self.failed("reading", error))? else {
            return Ok(Seen::Gone);
        };
        let status = request.status.unwrap_or_default();
        let mut state = UNANSWERED;
        for condition in status.conditions.into_iter().flatten() {
            let (name, message) = (self.name.clone(), condition.message.unwrap_or_default());
            match condition.type_.as_str() {
                "Denied" => return Err(CertificateError::Denied { name, message }),
                "Failed" => return Err(CertificateError::Failed { name, message }),
                "Approved" => state = UNSIGNED,
                _ => {}
            }
        }
        Ok(match status.certificate.and_then(|bytes| String::from_utf8(bytes.0).ok()) {
            Some(pem) => Seen::Issued(pem),
            None => Seen::Waits(state),
        })
    }

    fn failed(&self, what: &'static str, source: kube::Error) -> CertificateError {
        CertificateError::Api { what, name: self.name.clone(), source: source.into() }
    }
}

/// How far a request is.
enum Seen {
    Issued(String),
    Waits(&'static str),
    Gone,
}
