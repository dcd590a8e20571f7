//! The `OpenPGP` key that signs repositories and RPMs.
//!
//! A version 4 Ed25519 key in the encoding that `GnuPG` has known since 2.1 (`EdDSALegacy`): the gpgv of Debian 12
//! and rpm 4.16 and later verify it, which is not true of the newer `Ed25519` identifier of RFC 9580.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use pgp::composed::{
    ArmorOptions, CleartextSignedMessage, Deserializable, DetachedSignature, KeyType, SignedKeyDetails, SignedSecretKey,
};
use pgp::crypto::hash::HashAlgorithm;
use pgp::packet::{
    KeyFlags, PacketTrait, PubKeyInner, PublicKey, SecretKey, SignatureConfig, SignatureType, Subpacket, SubpacketData,
    UserId,
};
use pgp::ser::Serialize;
use pgp::types::{KeyDetails, KeyVersion, Password, Timestamp};

/// A secret key without a passphrase: it is protected by the mode of its file.
#[derive(Debug, Clone)]
pub struct SigningKey {
    key: SignedSecretKey,
}

impl SigningKey {
    /// Makes a key for `user_id` (`Name <address>`), as if at `created` (seconds since 1970), which expires
    /// after `lifetime`, if given.
    pub fn generate(user_id: &str, created: i64, lifetime: Option<Duration>) -> Result<Self> {
        Self::make(user_id, created, lifetime).with_context(|| format!("making a signing key for {user_id:?}"))
    }

    /// rPGP's own builder dates the self-signature with the clock and can't express an expiry, so that the
    /// packets are put together here.
    fn make(user_id: &str, created: i64, lifetime: Option<Duration>) -> Result<Self> {
        let created = timestamp(created)?;
        let kind = KeyType::Ed25519Legacy;
        let (public, secret) = kind.generate(rand::rngs::OsRng)?;
        let inner = PubKeyInner::new(KeyVersion::V4, kind.to_alg(), created, None, public)?;
        let public = PublicKey::from_inner(inner)?;
        let key = SecretKey::new(public.clone(), secret)?;

        let mut flags = KeyFlags::default();
        flags.set_certify(true);
        flags.set_sign(true);
        let mut config = signature(&key, SignatureType::CertPositive, created)?;
        config.hashed_subpackets.push(Subpacket::regular(SubpacketData::KeyFlags(flags))?);
        config.hashed_subpackets.push(Subpacket::regular(SubpacketData::IsPrimary(true))?);
        if let Some(lifetime) = lifetime {
            let lifetime = SubpacketData::KeyExpirationTime(lifetime.try_into()?);
            config.hashed_subpackets.push(Subpacket::regular(lifetime)?);
        }
        let id = UserId::from_str(pgp::types::PacketHeaderVersion::default(), user_id)?;
        let certification = config.sign_certification(&key, &public, &Password::empty(), id.tag(), &id)?;
        let user = id.into_signed(certification);
        let details = SignedKeyDetails::new(Vec::new(), Vec::new(), vec![user], Vec::new());
        Ok(Self { key: SignedSecretKey::new(key, details, Vec::new(), Vec::new()) })
    }

    /// Reads an armored secret key.
    pub fn load(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("reading the signing key {}", path.display()))?;
        let (key, _) = SignedSecretKey::from_string(&text)
            .with_context(|| format!("{} is no armored OpenPGP secret key", path.display()))?;
        key.verify_bindings().with_context(|| format!("the signing key {} is damaged", path.display()))?;
        Ok(Self { key })
    }

    /// Writes the armored secret key, readable by its owner alone. An existing file is never overwritten:
    /// a lost signing key can't be had again.
    pub fn save(&self, path: &Path) -> Result<()> {
        let text = self.key.to_armored_string(armor()).context("armoring the signing key")?;
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
            .with_context(|| format!("creating the signing key's file {}", path.display()))?;
        file.write_all(text.as_bytes())
            .and_then(|()| file.sync_all())
            .with_context(|| format!("writing the signing key to {}", path.display()))
    }

    /// The key in `path`, made and saved first if there is none.
    pub fn load_or_generate(path: &Path, user_id: &str, created: i64) -> Result<Self> {
        if path.exists() {
            return Self::load(path);
        }
        let key = Self::generate(user_id, created, None)?;
        key.save(path)?;
        Ok(key)
    }

    /// The public key, armored: what `Signed-By:` and `gpgkey=` name.
    pub fn public_armored(&self) -> Result<String> {
        self.key.to_public_key().to_armored_string(armor()).context("armoring the public key")
    }

    /// The public key, binary: what an apt keyring ending in `.gpg` holds.
    pub fn public_binary(&self) -> Result<Vec<u8>> {
        self.key.to_public_key().to_bytes().context("writing the public key")
    }

    /// The fingerprint, in upper-case hexadecimal.
    pub fn fingerprint(&self) -> String {
        self.key.primary_key.fingerprint().to_string().to_uppercase()
    }

    /// When the key was made, in seconds since 1970.
    pub fn created(&self) -> i64 {
        i64::from(self.key.primary_key.created_at().as_secs())
    }

    /// An armored detached signature, as made at `at` (or when the key was made, if that was later).
    pub fn sign_detached(&self, data: &[u8], at: i64) -> Result<String> {
        let key = &self.key.primary_key;
        let config = signature(key, SignatureType::Binary, self.signing_time(at)?)?;
        let signature = config.sign(key, &Password::empty(), data).context("signing")?;
        DetachedSignature::new(signature).to_armored_string(armor()).context("armoring a signature")
    }

    /// The text with a signature around it, as in `InRelease`.
    pub fn sign_clear(&self, text: &str, at: i64) -> Result<String> {
        let key = &self.key.primary_key;
        let config = signature(key, SignatureType::Text, self.signing_time(at)?)?;
        // The line break before the signature isn't part of the signed text.
        let text = text.strip_suffix('\n').unwrap_or(text);
        CleartextSignedMessage::new(text, config, key, &Password::empty())
            .and_then(|message| message.to_armored_string(armor()))
            .context("signing a text")
    }

    /// Puts this key's signature into an RPM.
    pub(crate) fn sign_rpm(&self, package: &mut ::rpm::Package, at: i64) -> Result<()> {
        let signer = ::rpm::signature::pgp::Signer::new(self.key.primary_key.clone())
            .context("using the key for an RPM signature")?;
        let at = self.signing_time(at)?.as_secs();
        package.sign_with_timestamp(signer, at).context("signing an RPM")
    }

    /// A verifier refuses a signature that is older than its key.
    fn signing_time(&self, at: i64) -> Result<Timestamp> {
        timestamp(at.max(self.created()))
    }
}

fn timestamp(seconds: i64) -> Result<Timestamp> {
    u32::try_from(seconds)
        .map(Timestamp::from_secs)
        .with_context(|| format!("{seconds} is no time that OpenPGP can express (1970 to 2106)"))
}

fn signature(key: &SecretKey, kind: SignatureType, at: Timestamp) -> Result<SignatureConfig> {
    ensure!(key.version() == KeyVersion::V4, "only version 4 keys are verified by gpgv and rpm everywhere");
    let mut config = SignatureConfig::v4(kind, key.algorithm(), HashAlgorithm::Sha512);
    config.hashed_subpackets = vec![
        Subpacket::regular(SubpacketData::SignatureCreationTime(at))?,
        Subpacket::regular(SubpacketData::IssuerFingerprint(key.fingerprint()))?,
    ];
    config.unhashed_subpackets = vec![Subpacket::regular(SubpacketData::IssuerKeyId(key.legacy_key_id()))?];
    Ok(config)
}

fn armor() -> ArmorOptions<'static> {
    ArmorOptions::default()
}
