//! The cluster's certificate authority, and the certificates and keys of its parts.

use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use serde_json::json;

/// The authority that signs everything in one cluster.
#[derive(Debug)]
pub(super) struct Authority {
    dir: PathBuf,
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Makes the authority and what the control plane's programs read from files.
    pub(super) fn new(dir: &Path, address: Ipv4Addr) -> Result<Self> {
        let mut parameters = CertificateParams::new(Vec::new()).context("describing the authority")?;
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.distinguished_name.push(DnType::CommonName, "testbed");
        parameters.key_usages =
            vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().context("making the authority's key")?;
        let certificate = parameters.self_signed(&key).context("signing the authority's certificate")?.pem();
        write(&dir.join("ca.crt"), &certificate)?;
        write(&dir.join("ca.key"), &key.serialize_pem())?;
        let authority = Self { dir: dir.to_path_buf(), certificate, issuer: Issuer::new(parameters, key) };

        let names = vec![
            address.to_string(),
            super::SERVICE.to_owned(),
            "127.0.0.1".to_owned(),
            "localhost".to_owned(),
            "kubernetes".to_owned(),
            "kubernetes.default".to_owned(),
            "kubernetes.default.svc".to_owned(),
        ];
        authority.to_files("apiserver", names, "kube-apiserver", &[], ExtendedKeyUsagePurpose::ServerAuth)?;
        let client = ExtendedKeyUsagePurpose::ClientAuth;
        authority.to_files("apiserver-kubelet", Vec::new(), "kube-apiserver-kubelet", &["system:masters"], client)?;
        // Any key pair will do: tokens are signed with it, nothing else.
        let accounts = KeyPair::generate().context("making the service account key")?;
        write(&dir.join("service-account.key"), &accounts.serialize_pem())?;
        write(&dir.join("service-account.pub"), &accounts.public_key_pem())?;
        Ok(authority)
    }

    pub(super) fn certificate(&self) -> &str {
        &self.certificate
    }

    /// The kubeconfig of a part of the control plane.
    pub(super) fn kubeconfig(&self, url: &str, part: &str) -> Result<String> {
        match part {
            "admin" => self.kubeconfig_for(url, "admin", &["system:masters"]),
            other => self.kubeconfig_for(url, &format!("system:kube-{other}"), &[]),
        }
    }

    pub(super) fn kubeconfig_for(&self, url: &str, user: &str, groups: &[&str]) -> Result<String> {
        let (certificate, key) = self.sign(Vec::new(), user, groups, ExtendedKeyUsagePurpose::ClientAuth)?;
        Ok(self.kubeconfig_with(
            url,
            &json!({
                "client-certificate-data": base64(&certificate),
                "client-key-data": base64(&key),
            }),
        ))
    }

    /// A kubeconfig (JSON, which is YAML too) with these credentials.
    pub(super) fn kubeconfig_with(&self, url: &str, user: &serde_json::Value) -> String {
        json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "testbed", "cluster": {
                "server": url,
                "certificate-authority-data": base64(&self.certificate),
            }}],
            "users": [{"name": "user", "user": user}],
            "contexts": [{"name": "testbed", "context": {"cluster": "testbed", "user": "user"}}],
            "current-context": "testbed",
        })
        .to_string()
    }

    fn to_files(
        &self,
        file: &str,
        names: Vec<String>,
        user: &str,
        groups: &[&str],
        usage: ExtendedKeyUsagePurpose,
    ) -> Result<()> {
        let (certificate, key) = self.sign(names, user, groups, usage)?;
        write(&self.dir.join(format!("{file}.crt")), &certificate)?;
        write(&self.dir.join(format!("{file}.key")), &key)
    }

    fn sign(
        &self,
        names: Vec<String>,
        user: &str,
        groups: &[&str],
        usage: ExtendedKeyUsagePurpose,
    ) -> Result<(String, String)> {
        let what = || format!("making a certificate for {user}");
        let mut parameters = CertificateParams::new(names).with_context(what)?;
        parameters.distinguished_name.push(DnType::CommonName, user);
        for group in groups {
            parameters.distinguished_name.push(DnType::OrganizationName, *group);
        }
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        parameters.extended_key_usages = vec![usage];
        let key = KeyPair::generate().with_context(what)?;
        let certificate = parameters.signed_by(&key, &self.issuer).with_context(what)?;
        Ok((certificate.pem(), key.serialize_pem()))
    }
}

/// A request for a client certificate of any user and groups, with a new key, as `spec.request` takes it.
pub fn certificate_request(user: &str, groups: &[&str]) -> Result<String> {
    certificate_request_with(user, groups, &[])
}

/// The same, for a machine's names as well.
pub fn certificate_request_with(user: &str, groups: &[&str], names: &[&str]) -> Result<String> {
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    let mut parameters = CertificateParams::new(names).context("describing a certificate")?;
    parameters.distinguished_name = rcgen::DistinguishedName::new();
    for group in groups {
        parameters.distinguished_name.push(DnType::OrganizationName, *group);
    }
    parameters.distinguished_name.push(DnType::CommonName, user);
    let key = KeyPair::generate().context("making a key")?;
    let request = parameters.serialize_request(&key).context("making a request")?;
    Ok(base64(&request.pem().context("writing a request")?))
}

fn base64(text: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(text)
}

fn write(path: &Path, content: &str) -> Result<()> {
    fs::write(path, content)
        .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o600)))
        .with_context(|| format!("writing {}", path.display()))
}
