//! Requests over HTTP, with TLS or without.

use super::cel::{QUOTED, short};
use super::{Asker, names};
use anyhow::{Context, ensure};
use bytes::Bytes;
use http::Uri;
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
/// The annotation of such a Secret with the one place that its token may be sent to.
const TOKEN_URL: &str = "nodelet.dev/gate-url";
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
        let body =
            body.map_err(|error| anyhow::anyhow!("reading the answer of {}: {error}", short(self.url, QUOTED)))?;
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
            let token = token(asker, reference, &origin(self.url)?).await?;
            request.headers_mut().insert(AUTHORIZATION, token);
        }
        let connector =
            HttpsConnectorBuilder::new().with_tls_config(self.trust()?).https_or_http().enable_http1().build();
        // Asked every few seconds: a connection that is kept would not notice that new ones fail.
        let client = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(connector);
        client.request(request).await.with_context(|| format!("asking {}", short(self.url, QUOTED)))
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

/// Where an address leads: scheme, host and port, as text.
fn origin(url: &str) -> anyhow::Result<String> {
    let uri: Uri = url.parse().with_context(|| format!("{url} is no address"))?;
    let (scheme, authority) = (uri.scheme_str().unwrap_or_default(), uri.authority());
    let authority = authority.with_context(|| format!("{url} is no address"))?;
    // What is before an @ looks like a host to people.
    ensure!(!authority.as_str().contains('@'), "write the address without a user: {}", authority.host());
    // What is no port the library passes over.
    let behind = authority.as_str().strip_prefix(authority.host()).unwrap_or_default();
    let port = match (behind.strip_prefix(':'), scheme) {
        (Some(text), _) => text.parse::<u16>().with_context(|| format!("{text} is no port"))?,
        (None, "https") => 443,
        (None, _) => 80,
    };
    Ok(format!("{scheme}://{}:{port}", authority.host().to_ascii_lowercase()))
}

/// Refuses a Secret that nobody marked for gates, and for that place: who may edit a set may not choose where it is sent.
fn check(secret: &Secret, name: &str, origin: &str) -> anyhow::Result<()> {
    let meant = secret.labels().get(TOKEN_LABEL).is_some_and(|value| value == "true");
    ensure!(meant, "the Secret {name} is not meant for gates: give it the label {TOKEN_LABEL}: \"true\"");
    let place = secret.annotations().get(TOKEN_URL).and_then(|url| self::origin(url).ok());
    ensure!(
        place.as_deref() == Some(origin),
        "the Secret {name} is not meant for {origin}: give it the annotation {TOKEN_URL}: \"{origin}\""
    );
    Ok(())
}

/// The token, as a header that nothing prints.
async fn token(asker: &Asker, reference: &SecretKey, origin: &str) -> anyhow::Result<HeaderValue> {
    let SecretKey { name, key } = reference;
    names::check("tokenSecretRef.name", name)?;
    let secrets: Api<Secret> = Api::namespaced(asker.client.clone(), &asker.namespace);
    let secret = secrets.get_opt(name).await.with_context(|| format!("reading the Secret {name}"))?;
    let secret = secret.with_context(|| format!("there is no Secret {name} in {}", asker.namespace))?;
    check(&secret, name, origin)?;
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
    use serde_json::json;

    #[test]
    fn a_token_is_sent_where_its_secret_says() {
        for (url, expected) in [
            ("https://shop.example.org/healthz?x=1", "https://shop.example.org:443"),
            ("https://Shop.example.org:8443", "https://shop.example.org:8443"),
            ("http://a/", "http://a:80"),
            ("https://[::1]:6443/x", "https://[::1]:6443"),
        ] {
            assert_eq!(origin(url).unwrap(), expected);
        }
        for url in ["https://shop.example.org@evil.example.org/", "https://u:p@a/", "/a", "", "https://a:99999/"] {
            assert!(origin(url).is_err(), "{url}");
        }
        let secret = |label: &str, url: Option<&str>| -> Secret {
            let annotations = url.map(|url| json!({TOKEN_URL: url}));
            serde_json::from_value(json!({"metadata": {"labels": {TOKEN_LABEL: label}, "annotations": annotations}}))
                .unwrap()
        };
        let place = "https://shop.example.org:443";
        let said = |secret: &Secret| check(secret, "probe", place).map_err(|error| error.to_string());
        for url in ["https://shop.example.org", "https://shop.example.org:443/", "https://SHOP.example.org/healthz"] {
            assert_eq!(said(&secret("true", Some(url))), Ok(()), "{url}");
        }
        assert!(said(&secret("false", Some(place))).unwrap_err().contains("the label nodelet.dev/gate-token"));
        let other = "the Secret probe is not meant for https://shop.example.org:443: give it the annotation \
                     nodelet.dev/gate-url: \"https://shop.example.org:443\"";
        for url in [None, Some("https://shop.example.org.evil.org"), Some("http://shop.example.org"), Some("*")] {
            assert_eq!(said(&secret("true", url)).unwrap_err(), other, "{url:?}");
        }
    }

    #[test]
    fn a_bundle_has_certificates() {
        let certificate = rcgen::generate_simple_self_signed(["example.org".to_owned()]).unwrap().cert.pem();
        assert_eq!(bundle(&format!("{certificate}\n{certificate}")).unwrap().len(), 2);
        assert_eq!(bundle("nothing").unwrap_err().to_string(), "`caBundle` has no certificate in it");
        let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert!(format!("{:#}", bundle(broken).unwrap_err()).starts_with("using `caBundle`"));
    }
}
