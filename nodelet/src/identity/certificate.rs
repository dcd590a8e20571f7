//! A client certificate with its key.

use jiff::{SignedDuration, Timestamp};
use rcgen::{KeyPair, PublicKeyData};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt;
use x509_parser::pem::parse_x509_pem;

/// A certificate that the cluster issued, with the key that never left the node.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Certificate {
    user: String,
    pem: String,
    key: String,
    /// The beginning that a signer writes lies in the past, for clocks that differ: only this one counts.
    received: Timestamp,
    not_after: Timestamp,
}

/// A renewal never comes sooner after the last one: a signer may give certificates of minutes.
const LEAST: SignedDuration = SignedDuration::from_secs(10);

impl Certificate {
    /// What a signer issued; `None` when it can't be read.
    pub(super) fn new(pem: &str, key: &str, received: Timestamp) -> Option<Self> {
        let (_, parsed) = parse_x509_pem(pem.as_bytes()).ok()?;
        let certificate = parsed.parse_x509().ok()?;
        let user = certificate.subject().iter_common_name().next()?.as_str().ok()?.to_owned();
        let not_after = Timestamp::from_second(certificate.validity().not_after.timestamp()).ok()?;
        Some(Self { user, pem: pem.to_owned(), key: key.to_owned(), received, not_after })
    }

    /// Whether it is this node's.
    pub fn is_for(&self, node: &str) -> bool {
        self.user.strip_prefix(super::USER_PREFIX) == Some(node)
    }

    /// Whether the API server takes it no more.
    pub fn is_over(&self, now: Timestamp) -> bool {
        now >= self.not_after
    }

    /// Until when it is good.
    pub fn not_after(&self) -> Timestamp {
        self.not_after
    }

    /// When the next one is asked for: after two thirds of its life.
    pub fn renew_at(&self) -> Timestamp {
        let life = self.not_after.duration_since(self.received).max(SignedDuration::ZERO);
        let wait = (life / 3 * 2).max(LEAST);
        self.received.checked_add(wait).unwrap_or(self.not_after)
    }

    /// What stands for its key.
    pub fn key_fingerprint(&self) -> String {
        KeyPair::from_pem(&self.key).map(|key| fingerprint(&key)).unwrap_or_default()
    }

    pub(super) fn pem(&self) -> &str {
        &self.pem
    }

    pub(super) fn key(&self) -> &str {
        &self.key
    }
}

/// The hash of a public key, as `openssl pkey -pubout -outform DER | sha256sum` gives it.
pub(super) fn fingerprint(key: &KeyPair) -> String {
    Sha256::digest(key.subject_public_key_info()).iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never the key.
        write!(f, "certificate of {} until {}", self.user, self.not_after)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn it_is_renewed_at_two_thirds_of_what_is_left_of_it() {
        let certificate = |received, not_after| Certificate {
            user: "nodelet:n1".into(),
            pem: String::new(),
            key: "secret".into(),
            received: at(received),
            not_after: at(not_after),
        };
        assert_eq!(certificate(1000, 4000).renew_at(), at(3000));
        assert_eq!(certificate(1000, 1003).renew_at(), at(1010), "never in a hot loop");
        assert!(certificate(1000, 4000).is_over(at(4000)) && !certificate(1000, 4000).is_over(at(3999)));
        assert!(certificate(0, 1).is_for("n1") && !certificate(0, 1).is_for("n"));
        assert!(!format!("{:?}", certificate(0, 1)).contains("secret"));
    }
}
