//! Who the node is to the cluster: a client certificate of its own, got once with a credential that somebody else
//! gave (a bootstrap token, or the kubelet's), and renewed by itself from then on.
//!
//! Where a cluster issues no such certificates, the kubelet's own credential is used instead.

mod certificate;
mod machine;
mod request;
mod token;

pub use certificate::Certificate;
pub use request::{CertificateError, USER_PREFIX, subject};

use crate::root::Root;
use crate::settings::{Cluster, Identity as Kind};
use crate::store::{Store, StoreError};
use jiff::Timestamp;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use nodelet_api::objects;
use request::Pending;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The name of the record in the state directory.
const RECORD: &str = "identity.json";
/// The kubelet's credential, where kubeadm and nodelet's preset have it: another way in when the first one is gone.
const KUBELET: &str = "/etc/kubernetes/kubelet.conf";

/// What kept nodelet from having a credential.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The file with the first credential can't be used.
    #[error("{}: {why}", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// The bootstrap token can't be used.
    #[error(transparent)]
    Token(#[from] token::TokenError),
    /// No certificate was issued.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// What is kept can't be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The API server did not answer as it should.
    #[error("{what}: {source}")]
    Api {
        /// What was tried.
        what: &'static str,
        /// Why not.
        source: Box<kube::Error>,
    },
}

/// Who the node is, and how that is found out.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Where the host's files are.
    pub root: Root,
    /// The node's name.
    pub node: String,
    /// Whose credential is used.
    pub kind: Kind,
    /// Where the cluster is, with a credential.
    pub kubeconfig: PathBuf,
    /// How long a certificate is asked for.
    pub lifetime: Option<Duration>,
}

/// A credential that is in use.
#[derive(Clone)]
pub struct Credential {
    /// What speaks to the API server with it.
    pub client: Client,
    /// nodelet's own certificate; none while the kubelet's credential is used.
    pub certificate: Option<Certificate>,
}

/// What is kept of a certificate, with the way to the cluster: the file that showed it may be gone later.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Kept {
    certificate: Option<Certificate>,
    /// A request that was not answered yet, so that a restart goes on to wait for the same one.
    pending: Option<Pending>,
    server: String,
    /// The certificates that the API server's is checked against, in DER.
    authority: Vec<Vec<u8>>,
}

impl Identity {
    /// The identity that the settings ask for.
    pub fn new(root: &Root, node: &str, settings: &Cluster) -> Self {
        Self {
            root: root.clone(),
            node: node.to_owned(),
            kind: settings.identity,
            kubeconfig: root.join(&settings.kubeconfig),
            lifetime: (settings.certificate_seconds > 0)
                .then(|| Duration::from_secs(settings.certificate_seconds.into())),
        }
    }

    /// A credential: the one that is kept, as long as it is good, or a new one. `tell` hears what is waited for.
    pub async fn credential(&self, tell: &(dyn Fn(String) + Sync)) -> Result<Credential, IdentityError> {
        if self.kind == Kind::Kubelet {
            let client = client(read(&self.kubeconfig).await?)?;
            return Ok(Credential { client, certificate: None });
        }
        let kept = self.kept()?;
        if let Some(certificate) = kept.certificate.clone().filter(|known| known.is_for(&self.node))
            && !certificate.is_over(Timestamp::now())
        {
            let way = self.way(&kept).await?;
            return Ok(Credential { client: client(as_node(way, &certificate))?, certificate: Some(certificate) });
        }
        self.begin(tell).await
    }

    /// The first certificate, by somebody else's credential.
    async fn begin(&self, tell: &(dyn Fn(String) + Sync)) -> Result<Credential, IdentityError> {
        let mut last = None;
        for path in [self.kubeconfig.clone(), self.root.join(KUBELET)] {
            if last.is_some() && (path == self.kubeconfig || !path.exists()) {
                continue;
            }
            match self.ask_with(&path, tell).await {
                Ok(credential) => return Ok(credential),
                // Another credential would be told the same.
                Err(error @ IdentityError::Certificate(CertificateError::Denied { .. })) => return Err(error),
                Err(error) => last = last.or(Some(error)),
            }
        }
        Err(last.unwrap_or_else(|| IdentityError::Kubeconfig { path: self.kubeconfig.clone(), why: "unused".into() }))
    }

    async fn ask_with(&self, path: &Path, tell: &(dyn Fn(String) + Sync)) -> Result<Credential, IdentityError> {
        let mut way = read(path).await?;
        // The token is for the first way in; the kubelet's credential is tried when that one is gone or over.
        let token = if path == self.kubeconfig { token::from_systemd()? } else { None };
        if let Some(token) = token {
            way.auth_info = AuthInfo { token: Some(token.into()), ..AuthInfo::default() };
        } else if let Some(file) = &way.auth_info.token_file {
            token::check_file(Path::new(file))?;
        }
        self.obtain(way, tell).await
    }

    /// The next certificate, by the one that is in use.
    pub async fn renew(&self, credential: &Credential) -> Result<Credential, IdentityError> {
        let kept = self.kept()?;
        let Some(certificate) = &credential.certificate else { return Ok(credential.clone()) };
        let way = self.way(&kept).await?;
        self.obtain(as_node(way, certificate), &|_| ()).await
    }

    /// Asks for a certificate and waits for it.
    async fn obtain(&self, way: Config, tell: &(dyn Fn(String) + Sync)) -> Result<Credential, IdentityError> {
        let store = Store::open(&self.root)?;
        let mut kept = self.kept()?;
        let pending = match kept.pending.take().filter(|pending| pending.is_for(&self.node)) {
            Some(pending) => pending,
            None => Pending::new(&self.node)?,
        };
        kept.server = way.cluster_url.to_string();
        kept.authority = way.root_cert.clone().unwrap_or_default();
        // Before it is sent: a crash must not leave a request whose key nobody has.
        store.set_record(RECORD, Some(&Kept { pending: Some(pending.clone()), ..kept.clone() }))?;
        let issued = pending.issue(client(way.clone())?, self.lifetime, tell).await;
        if let Err(CertificateError::Denied { .. } | CertificateError::Failed { .. }) = &issued {
            // The next try is another request.
            store.set_record(RECORD, Some(&kept))?;
        }
        let certificate = issued?;
        kept.certificate = Some(certificate.clone());
        store.set_record(RECORD, Some(&kept))?;
        tracing::info!(until = %certificate.not_after(), "this node has a certificate of its own");
        Ok(Credential { client: client(as_node(way, &certificate))?, certificate: Some(certificate) })
    }

    /// Where the cluster is: what the settings' file says now, or what it said when the certificate was issued.
    async fn way(&self, kept: &Kept) -> Result<Config, IdentityError> {
        match read(&self.kubeconfig).await {
            Err(error) if !kept.server.is_empty() => {
                let uri = kept.server.parse().map_err(|_| error)?;
                let mut config = Config::new(uri);
                config.root_cert = Some(kept.authority.clone()).filter(|all| !all.is_empty());
                Ok(config)
            }
            other => other,
        }
    }

    fn kept(&self) -> Result<Kept, StoreError> {
        Ok(Store::open(&self.root)?.record(RECORD)?.unwrap_or_default())
    }
}

impl Credential {
    /// What the node's object says of it.
    pub fn describe(&self) -> Option<objects::Identity> {
        self.certificate.as_ref().map(|certificate| objects::Identity {
            machine_id: machine::id().unwrap_or_default(),
            key: certificate.key_fingerprint(),
            not_after: objects::time_text(certificate.not_after()),
        })
    }
}

/// The same way with the node's own certificate.
fn as_node(mut way: Config, certificate: &Certificate) -> Config {
    use base64::Engine as _;
    let encode = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
    way.auth_info = AuthInfo {
        client_certificate_data: Some(encode(certificate.pem())),
        client_key_data: Some(encode(certificate.key()).into()),
        ..AuthInfo::default()
    };
    way
}

async fn read(path: &Path) -> Result<Config, IdentityError> {
    let wrong = |why: String| IdentityError::Kubeconfig { path: path.to_owned(), why };
    let kubeconfig = Kubeconfig::read_from(path).map_err(|error| wrong(full(&error)))?;
    let options = KubeConfigOptions::default();
    Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(|error| wrong(full(&error)))
}

fn client(mut config: Config) -> Result<Client, IdentityError> {
    // A request that fails is tried again in our own time, which is spread over the nodes.
    config.default_retry = false;
    Client::try_from(config).map_err(|source| IdentityError::Api { what: "making a client", source: source.into() })
}

/// An error with what caused it.
fn full(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        cause = error.source();
    }
    text
}
