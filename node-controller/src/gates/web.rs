//! Requests over HTTP, with TLS or without.

use super::{Asker, names};
use anyhow::{Context, ensure};
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue, USER_AGENT};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, ResourceExt};
use nodelet_api::objects::{HttpGate, PrometheusGate, SecretKey};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use std::sync::{Arc, OnceLock};

/// The label of Secrets whose tokens gates may send. Without it, whoever may edit a set could have any Secret of the
/// controller's namespace sent to an address of his own.
const TOKEN_LABEL: &str = "nodelet.dev/gate-token";
/// As many bytes of an answer are read.
const BODY_LIMIT: usize = 1 << 20;

/// Where to, and with what.
pub(super) struct Address<'g> {
    url: &'g str,
    authorities: Option<&'g str>,
    token: Option<&'g SecretKey>,
}

impl<'g> From<&'g HttpGate> for Address<'g> {
    fn from(gate: &'g HttpGate) -> Self {
        Self { url: &gate.url, authorities: gate.ca_bundle.as_deref(), token: gate.token_secret_ref.as_ref() }
    }
}

impl<'g> From<&'g PrometheusGate> for Address<'g> {
    fn from(gate: &'g PrometheusGate) -> Self {
        Self { url: &gate.url, authorities: gate.ca_bundle.as_deref(), token: gate.token_secret_ref.as_ref() }
    }
}

impl Address<'_> {
    /// Asks by GET; the status. Redirects are answers like others.
    pub(super) async fn get(&self, asker: &Asker) -> anyhow::Result<u16> {
        let request = http::Request::get(self.url);
        Ok(self.send(asker, request, Full::default()).await?.status().as_u16())
    }

    /// Sends a form by POST to a path below; the status and the answer.
    pub(super) async fn post(&self, asker: &Asker, path: &str, form: &[(&str, &str)]) -> anyhow::Result<(u16, Bytes)> {
        let url = format!("{}{path}", self.url.trim_end_matches('/'));
        let form = form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
        let request = http::Request::post(url).header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        let answer = self.send(asker, request, Full::from(form)).await?;
        let status = answer.status().as_u16();
        let body = Limited::new(answer.into_body(), BODY_LIMIT).collect().await;
        // The cause is boxed in a way that anyhow does not take.
        let body = body.map_err(|error| anyhow::anyhow!("reading the answer of {}: {error}", self.url))?;
        Ok((status, body.to_bytes()))
    }

    async fn send(
        &self,
        asker: &Asker,
        request: http::request::Builder,
        body: Full<Bytes>,
    ) -> anyhow::Result<http::Response<hyper::body::Incoming>> {
        let mut request = request
            .header(USER_AGENT, "node-controller")
            .body(body)
            .with_context(|| format!("{} is no address", self.url))?;
        if let Some(reference) = self.token {
            ensure!(self.url.starts_with("https://"), "a token is sent to https:// alone, and {} is not", self.url);
            let token = token(asker, reference).await?;
            request.headers_mut().insert(AUTHORIZATION, token);
        }
        let connector =
            HttpsConnectorBuilder::new().with_tls_config(self.trust()?).https_or_http().enable_http1().build();
        // Asked every few seconds: a connection that is kept would not notice that new ones fail.
        let client = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(connector);
        client.request(request).await.with_context(|| format!("asking {}", self.url))
    }

    fn trust(&self) -> anyhow::Result<ClientConfig> {
        let roots = match self.authorities {
            Some(text) => bundle(text)?,
            // A plain address needs none, and an image without a system has none.
            None if !self.url.starts_with("https://") => Arc::new(RootCertStore::empty()),
            None => system_roots()?,
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        Ok(config.with_root_certificates(roots).with_no_client_auth())
    }
}

/// The token, as a header that nothing prints.
async fn token(asker: &Asker, reference: &SecretKey) -> anyhow::Result<HeaderValue> {
    let SecretKey { name, key } = reference;
    names::check("tokenSecretRef.name", name)?;
    let secrets: Api<Secret> = Api::namespaced(asker.client.clone(), &asker.namespace);
    let secret = secrets.get_opt(name).await.with_context(|| format!("reading the Secret {name}"))?;
    let secret = secret.with_context(|| format!("there is no Secret {name} in {}", asker.namespace))?;
    let meant = secret.labels().get(TOKEN_LABEL).is_some_and(|value| value == "true");
    ensure!(meant, "the Secret {name} is not meant for gates: give it the label {TOKEN_LABEL}: \"true\"");
    let bytes = secret.data.unwrap_or_default().remove(key);
    let bytes = bytes.with_context(|| format!("the Secret {name} has no key {key}"))?.0;
    let header = [b"Bearer ", bytes.trim_ascii()].concat();
    // The error is left out: it could quote what is wrong.
    let mut header =
        HeaderValue::from_bytes(&header).ok().with_context(|| format!("{key} in the Secret {name} is no token"))?;
    header.set_sensitive(true);
    Ok(header)
}

/// Authorities in PEM.
fn bundle(text: &str) -> anyhow::Result<Arc<RootCertStore>> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(text.as_bytes()) {
        roots.add(certificate.context("reading `caBundle`")?).context("using `caBundle`")?;
    }
    ensure!(!roots.is_empty(), "`caBundle` has no certificate in it");
    Ok(Arc::new(roots))
}

/// The system's authorities, read once: that takes a while, and they don't change under a running program.
fn system_roots() -> anyhow::Result<Arc<RootCertStore>> {
    static ROOTS: OnceLock<Arc<RootCertStore>> = OnceLock::new();
    let roots = ROOTS.get_or_init(|| {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        Arc::new(roots)
    });
    ensure!(
        !roots.is_empty(),
        "the controller's system trusts no authority: write `caBundle`, or give it a file of them by SSL_CERT_FILE"
    );
    Ok(Arc::clone(roots))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_bundle_has_certificates() {
        let certificate = rcgen::generate_simple_self_signed(["example.org".to_owned()]).unwrap().cert.pem();
        assert_eq!(bundle(&format!("{certificate}\n{certificate}")).unwrap().len(), 2);
        assert_eq!(bundle("nothing").unwrap_err().to_string(), "`caBundle` has no certificate in it");
        let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert!(format!("{:#}", bundle(broken).unwrap_err()).starts_with("using `caBundle`"));
    }
}
