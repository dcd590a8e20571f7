//! A node's request for a certificate, read once at the edge.

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::ResourceExt;
use nodelet_api::objects::{NODES_GROUP, SIGNER, USAGES, USER_PREFIX};
use sha2::{Digest, Sha256};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::prelude::FromDer;

/// A request that nobody answered yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its name.
    pub name: String,
    /// The node that it is for.
    pub node: String,
    /// Who asks.
    pub user: String,
    /// The groups of who asks.
    pub groups: Vec<String>,
    /// What stands for the key that the certificate is for: the hash of the public key.
    pub key: String,
    /// What is wrong with it, whoever asks.
    pub wrong: Option<String>,
}

impl Request {
    /// Reads a request; `None` when it is answered already, or is not for a nodelet.
    pub fn read(object: &CertificateSigningRequest) -> Option<Self> {
        let conditions = object.status.iter().flat_map(|status| status.conditions.iter().flatten());
        if conditions.count() > 0 {
            return None;
        }
        Self::parse(object)
    }

    /// Reads a request, answered or not; `None` when it is not for a nodelet.
    pub(crate) fn parse(object: &CertificateSigningRequest) -> Option<Self> {
        if object.spec.signer_name != SIGNER {
            return None;
        }
        let bytes = &object.spec.request.0;
        let (_, pem) = x509_parser::pem::parse_x509_pem(bytes).ok()?;
        let (_, parsed) = X509CertificationRequest::from_der(&pem.contents).ok()?;
        let info = &parsed.certification_request_info;
        let names: Vec<&str> = info.subject.iter_common_name().filter_map(|name| name.as_str().ok()).collect();
        let groups: Vec<&str> = info.subject.iter_organization().filter_map(|name| name.as_str().ok()).collect();
        let [user] = names.as_slice() else { return None };
        let node = user.strip_prefix(USER_PREFIX)?.to_owned();
        let mut usages = object.spec.usages.clone().unwrap_or_default();
        usages.sort();
        let others = info.subject.iter_attributes().count() != 2;
        let wrong = if groups != [NODES_GROUP] || others {
            Some(format!("its subject must be O={NODES_GROUP}, CN={USER_PREFIX}NODE, and nothing else"))
        } else if usages != USAGES {
            Some(format!("its usages must be exactly {}", USAGES.join(" and ")))
        } else if parsed.requested_extensions().is_some_and(|mut all| all.next().is_some()) {
            Some("it must ask for no extensions, such as other names".to_owned())
        } else {
            None
        };
        let key = Sha256::digest(info.subject_pki.raw);
        Some(Self {
            name: object.name_any(),
            node,
            user: object.spec.username.clone().unwrap_or_default(),
            groups: object.spec.groups.clone().unwrap_or_default(),
            key: key.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}")),
            wrong,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use k8s_openapi::ByteString;
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};

    fn object(user: &str, groups: &[&str], names: Vec<String>, usages: &[&str]) -> CertificateSigningRequest {
        let mut parameters = CertificateParams::new(names).unwrap();
        parameters.distinguished_name = DistinguishedName::new();
        for group in groups {
            parameters.distinguished_name.push(DnType::OrganizationName, *group);
        }
        parameters.distinguished_name.push(DnType::CommonName, user);
        let key = KeyPair::generate().unwrap();
        let pem = parameters.serialize_request(&key).unwrap().pem().unwrap();
        let mut object = CertificateSigningRequest::default();
        object.metadata.name = Some("r".into());
        object.spec.request = ByteString(pem.into_bytes());
        object.spec.signer_name = SIGNER.into();
        object.spec.usages = Some(usages.iter().map(ToString::to_string).collect());
        object.spec.username = Some("somebody".into());
        object
    }

    #[test]
    fn a_request_is_read() {
        let read = Request::read(&object("nodelet:n1", &[NODES_GROUP], Vec::new(), &USAGES)).unwrap();
        assert_eq!((read.node.as_str(), read.user.as_str(), &read.wrong), ("n1", "somebody", &None));
        assert_eq!(read.key.len(), 64);
        assert_eq!(Request::read(&object("somebody", &[NODES_GROUP], Vec::new(), &USAGES)), None);
        let mut other = object("nodelet:n1", &[NODES_GROUP], Vec::new(), &USAGES);
        other.spec.signer_name = "example.com/other".into();
        assert_eq!(Request::read(&other), None, "another signer's business");
    }

    #[test]
    fn what_is_wrong_with_it_is_said() {
        let wrong = |groups: &[&str], names: &[&str], usages: &[&str]| {
            let names = names.iter().map(ToString::to_string).collect();
            Request::read(&object("nodelet:n1", groups, names, usages)).unwrap().wrong.unwrap()
        };
        assert!(wrong(&["system:masters"], &[], &USAGES).contains("its subject must be"));
        assert!(wrong(&[], &[], &USAGES).contains("its subject must be"));
        assert!(wrong(&[NODES_GROUP], &["example.com"], &USAGES).contains("no extensions"));
        assert!(wrong(&[NODES_GROUP], &[], &["client auth", "digital signature", "server auth"]).contains("usages"));
    }
}
