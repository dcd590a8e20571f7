//! Signing keys of repositories: one that has expired is found before anything is tried with it.
//!
//! Only what that takes is read of `OpenPGP`: the packets of a key, its creation, and the life that its own signature
//! gives it. Whether a signature is right is the package manager's business.

use base64::Engine;
use jiff::{SignedDuration, Timestamp};

/// Checks a key, armoured or binary. What is wrong with it, in words.
pub fn check(key: &[u8], now: Timestamp) -> Result<(), String> {
    let binary = if key.starts_with(b"-----BEGIN") { dearmour(key)? } else { key.to_vec() };
    let keys = keys(&binary);
    if keys.is_empty() {
        return Err("there is no public key in it: export it with `gpg --export --armor KEY`".into());
    }
    // Several keys in one file: the repository is on its way from one to the next.
    let ends: Option<Vec<Timestamp>> = keys.iter().map(|key| key.expires.filter(|end| *end <= now)).collect();
    match ends.and_then(|ends| ends.into_iter().max()) {
        Some(end) => Err(format!(
            "the key expired on {}: get the repository's current key and put it here",
            end.strftime("%Y-%m-%d")
        )),
        None => Ok(()),
    }
}

fn dearmour(text: &[u8]) -> Result<Vec<u8>, String> {
    let text = String::from_utf8_lossy(text);
    let mut bytes = Vec::new();
    let mut block: Option<String> = None;
    let mut in_headers = false;
    for line in text.lines().map(str::trim) {
        match &mut block {
            None if line.starts_with("-----BEGIN") => (block, in_headers) = (Some(String::new()), true),
            None => {}
            Some(packed) if line.starts_with("-----END") => {
                let decoded = base64::engine::general_purpose::STANDARD.decode(packed.as_str());
                bytes.extend(decoded.map_err(|error| format!("its armour is damaged ({error}): copy it again"))?);
                block = None;
            }
            Some(_) if in_headers && (line.is_empty() || line.contains(": ")) => in_headers = !line.is_empty(),
            // The checksum.
            Some(_) if line.starts_with('=') => {}
            Some(packed) => {
                in_headers = false;
                packed.push_str(line);
            }
        }
    }
    if block.is_some() {
        return Err("its armour has no end: copy it again, down to the line with END".into());
    }
    Ok(bytes)
}

/// A primary key.
struct Key {
    created: Timestamp,
    expires: Option<Timestamp>,
    /// When the signature was made that says so: the newest counts.
    said: u32,
}

const PUBLIC_KEY: u8 = 6;
const SUBKEY: u8 = 14;
const SIGNATURE: u8 = 2;

fn keys(bytes: &[u8]) -> Vec<Key> {
    let mut keys: Vec<Key> = Vec::new();
    let mut of_subkey = false;
    for (tag, body) in Packets(bytes) {
        match tag {
            PUBLIC_KEY => {
                of_subkey = false;
                if let Some(created) = body.get(1..5).map(number).and_then(time) {
                    keys.push(Key { created, expires: None, said: 0 });
                }
            }
            SUBKEY => of_subkey = true,
            SIGNATURE if !of_subkey => {
                if let (Some(key), Some(life)) = (keys.last_mut(), life(body))
                    && life.said >= key.said
                {
                    key.said = life.said;
                    let end = life.seconds.map(|seconds| key.created + SignedDuration::from_secs(seconds.into()));
                    key.expires = end;
                }
            }
            _ => {}
        }
    }
    keys
}

/// What a signature says of a key's life.
struct Life {
    said: u32,
    seconds: Option<u32>,
}

/// Reads a key's own certification: those of others don't say what a key is for.
fn life(body: &[u8]) -> Option<Life> {
    let (version, kind) = (*body.first()?, *body.get(1)?);
    if !matches!(kind, 0x10..=0x13 | 0x1f) {
        return None;
    }
    let (length, start) = match version {
        4 => (number(body.get(4..6)?), 6),
        6 => (number(body.get(4..8)?), 8),
        _ => return None,
    };
    let mut hashed = body.get(start..start + usize::try_from(length).ok()?)?;
    let (mut said, mut seconds, mut own) = (0, None, false);
    while let Some((length, rest)) = subpacket_length(hashed) {
        let (subpacket, after) = rest.split_at_checked(length)?;
        match subpacket.split_first().map(|(kind, value)| (kind & 0x7f, value)) {
            Some((2, value)) => said = number(value),
            Some((9, value)) => (seconds, own) = (Some(number(value)).filter(|seconds| *seconds > 0), true),
            Some((27, _)) => own = true,
            _ => {}
        }
        hashed = after;
    }
    own.then_some(Life { said, seconds })
}

fn subpacket_length(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (first, rest) = bytes.split_first()?;
    match *first {
        length @ 0..192 => Some((length.into(), rest)),
        first @ 192..255 => {
            let (second, rest) = rest.split_first()?;
            Some(((usize::from(first) - 192) * 256 + usize::from(*second) + 192, rest))
        }
        255 => Some((usize::try_from(number(rest.get(..4)?)).ok()?, rest.get(4..)?)),
    }
}

/// The packets of a binary key; they end where something isn't understood.
struct Packets<'a>(&'a [u8]);

impl<'a> Iterator for Packets<'a> {
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (head, rest) = self.0.split_first()?;
        let (tag, length, rest) = match head {
            0xc0.. => {
                let (length, rest) = subpacket_length(rest)?;
                (head & 0x3f, length, rest)
            }
            0x80..0xc0 => {
                let size = [1, 2, 4].get(usize::from(head & 3)).copied()?;
                (head >> 2 & 0x0f, usize::try_from(number(rest.get(..size)?)).ok()?, rest.get(size..)?)
            }
            _ => return None,
        };
        let (body, after) = rest.split_at_checked(length)?;
        self.0 = after;
        Some((tag, body))
    }
}

fn number(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |value: u32, byte| value << 8 | u32::from(*byte))
}

fn time(seconds: u32) -> Option<Timestamp> {
    Timestamp::from_second(seconds.into()).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// A key made in 1970 at second 100, with a certification that gives it a life.
    fn key(life: Option<u32>) -> Vec<u8> {
        let mut bytes = vec![0xc0 | PUBLIC_KEY, 6, 4, 0, 0, 0, 100, 22];
        let mut hashed = vec![5, 2, 0, 0, 0, 101, 2, 27, 3];
        if let Some(seconds) = life {
            hashed.extend([5, 9]);
            hashed.extend(seconds.to_be_bytes());
        }
        let mut signature = vec![4, 0x13, 22, 8, 0, u8::try_from(hashed.len()).unwrap()];
        signature.extend(hashed);
        bytes.extend([0x80 | SIGNATURE << 2, u8::try_from(signature.len()).unwrap()]);
        bytes.extend(signature);
        bytes
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_key_lives_as_long_as_it_says() {
        check(&key(Some(1000)), at(1099)).unwrap();
        let error = check(&key(Some(1000)), at(1100)).unwrap_err();
        assert!(error.starts_with("the key expired on 1970-01-01"), "{error}");
        check(&key(None), at(4_000_000_000)).unwrap();
        check(&[key(Some(1)), key(Some(5000))].concat(), at(2000)).unwrap();
    }

    #[test]
    fn armour_is_taken_off() {
        let armoured = |key: &[u8]| {
            let text = base64::engine::general_purpose::STANDARD.encode(key);
            format!(
                "-----BEGIN PGP PUBLIC KEY BLOCK-----\nComment: x\n\n{text}\n=abcd\n-----END PGP PUBLIC KEY BLOCK-----\n"
            )
        };
        check(armoured(&key(None)).as_bytes(), at(0)).unwrap();
        assert!(check(armoured(&key(Some(1))).as_bytes(), at(2000)).unwrap_err().contains("expired"));
        let cut = armoured(&key(None)).replace("-----END", "");
        assert!(check(cut.as_bytes(), at(0)).unwrap_err().contains("no end"));
        assert!(check(b"nonsense", at(0)).unwrap_err().contains("no public key"));
    }
}
