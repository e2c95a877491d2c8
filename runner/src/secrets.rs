//! Secrets of tenants: sealed at rest with the operator's key, opened only in a worker that runs a module which was
//! granted them, and taken out of what that run writes.
//!
//! A secret is sealed with AES-256-GCM under a random nonce, with its tenant and name as associated data: a row that
//! somebody moves to another tenant or name does not open. Keys are told apart by an id that is made of them, so that
//! several can be in use while they are changed.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, LazyLock};

use anyhow::{Context as _, ensure};
use base64::Engine as _;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom as _, SystemRandom};
use sha2::Digest as _;

/// The bytes of a key.
const KEY_BYTES: usize = 32;
/// The shortest value: a shorter one would be taken out of all kinds of innocent output, and is no secret for long.
pub const MIN_VALUE_BYTES: usize = REDACTED.len();
/// A certificate with its key fits.
pub const MAX_VALUE_BYTES: usize = 64 << 10;
/// The shortest part of a value that is known again where a text was cut through it.
const MIN_PART_BYTES: usize = 4;
/// What stands in the place of a value. Not longer than any value, so that nothing grows past its limit.
const REDACTED: &[u8] = b"[secret]";

/// The operator's keys: the first seals, all of them open.
#[derive(Clone)]
pub struct Keyring(Arc<[Key]>);

struct Key {
    id: String,
    key: LessSafeKey,
}

/// A secret as the database keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealed {
    pub name: String,
    pub key_id: String,
    pub nonce: Vec<u8>,
    pub bytes: Vec<u8>,
}

impl Keyring {
    /// One key or several, in base64, with commas between.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let keys = text.split(',').map(str::trim).filter(|key| !key.is_empty()).enumerate();
        let keys: Vec<Key> = keys
            .map(|(number, key)| Key::parse(key).with_context(|| format!("key {}", number + 1)))
            .collect::<anyhow::Result<_>>()?;
        ensure!(!keys.is_empty(), "there is no key; make one with: openssl rand -base64 {KEY_BYTES}");
        Ok(Self(keys.into()))
    }

    /// What seals from now on.
    pub fn key_id(&self) -> &str {
        &self.0[0].id
    }

    pub fn seal(&self, tenant: &str, name: &str, value: &str) -> anyhow::Result<Sealed> {
        let size = value.len();
        ensure!(
            (MIN_VALUE_BYTES..=MAX_VALUE_BYTES).contains(&size),
            "value of {size} bytes is out of range; a secret has {MIN_VALUE_BYTES} to {MAX_VALUE_BYTES} bytes"
        );
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new().fill(&mut nonce).map_err(|_| anyhow::anyhow!("the system has no random numbers"))?;
        let mut bytes = value.as_bytes().to_vec();
        let Key { id, key } = &self.0[0];
        key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), associated(tenant, name), &mut bytes)
            .map_err(|_| anyhow::anyhow!("the secret cannot be sealed"))?;
        Ok(Sealed { name: name.to_owned(), key_id: id.clone(), nonce: nonce.to_vec(), bytes })
    }

    /// The value. The error says nothing of it.
    pub fn open(&self, tenant: &str, sealed: &Sealed) -> anyhow::Result<String> {
        let Sealed { name, key_id, nonce, bytes } = sealed;
        let key = self.0.iter().find(|key| key.id == *key_id);
        let key = key.with_context(|| {
            format!("secret {name} was sealed with key {key_id}, which is not among this process's keys")
        })?;
        let broken = || anyhow::anyhow!("secret {name} of tenant {tenant} does not open: its row was changed");
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| broken())?;
        let mut bytes = bytes.clone();
        let value = key.key.open_in_place(nonce, associated(tenant, name), &mut bytes).map_err(|_| broken())?;
        String::from_utf8(value.to_vec()).map_err(|_| broken())
    }
}

impl Key {
    fn parse(text: &str) -> anyhow::Result<Self> {
        let bytes = base64::engine::general_purpose::STANDARD.decode(text);
        // What it was would be in a log.
        let bytes =
            bytes.map_err(|_| anyhow::anyhow!("it is not base64; make one with: openssl rand -base64 {KEY_BYTES}"))?;
        ensure!(bytes.len() == KEY_BYTES, "it has {} bytes; a key has {KEY_BYTES}", bytes.len());
        let id =
            hex::encode(&sha2::Sha256::new().chain_update("leasehold key id").chain_update(&bytes).finalize()[..4]);
        let key = UnboundKey::new(&AES_256_GCM, &bytes).expect("the length is right");
        Ok(Self { id, key: LessSafeKey::new(key) })
    }
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|key| &key.id)).finish()
    }
}

/// Lengths before texts, so that no two pairs are the same bytes.
fn associated(tenant: &str, name: &str) -> Aad<Vec<u8>> {
    let mut bytes = b"leasehold secret 1".to_vec();
    for text in [tenant, name] {
        bytes.extend((text.len() as u64).to_le_bytes());
        bytes.extend(text.as_bytes());
    }
    Aad::from(bytes)
}

/// What a run may ask for, by name: the value, or why there is none.
#[derive(Default, PartialEq, Eq)]
pub struct Secrets(BTreeMap<String, Result<String, String>>);

impl Secrets {
    pub fn none() -> &'static Arc<Self> {
        static NONE: LazyLock<Arc<Secrets>> = LazyLock::new(Arc::default);
        &NONE
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn get(&self, name: &str) -> Option<Result<&str, &str>> {
        self.0.get(name).map(|value| value.as_deref().map_err(String::as_str))
    }

    /// The same bytes without any of the values. A value that the guest has encoded, split or shortened is not known
    /// again.
    pub fn redact<'a>(&self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        let places = self.places(bytes, Cut::NONE);
        if places.is_empty() {
            return Cow::Borrowed(bytes);
        }
        Cow::Owned(without(bytes, &places))
    }

    /// Where values stand in the bytes, in order and apart from each other. Where the bytes were cut out of more, a
    /// part of a value at that end counts too.
    pub fn places(&self, bytes: &[u8], cut: Cut) -> Vec<Range<usize>> {
        let mut places = Vec::new();
        for value in self.0.values().flatten().map(String::as_bytes).filter(|value| !value.is_empty()) {
            let rest = each_end(bytes, value, |end| places.push(end - value.len()..end));
            if cut.after && rest >= MIN_PART_BYTES {
                places.push(bytes.len() - rest..bytes.len());
            }
            if cut.before {
                let begin: Vec<u8> = bytes[..bytes.len().min(value.len() - 1)].iter().rev().copied().collect();
                let reversed: Vec<u8> = value.iter().rev().copied().collect();
                let rest = each_end(&begin, &reversed, |_| ());
                if rest >= MIN_PART_BYTES {
                    places.push(0..rest);
                }
            }
            if cut.before && cut.after && (MIN_PART_BYTES..value.len()).contains(&bytes.len()) {
                let mut within = false;
                each_end(value, bytes, |_| within = true);
                if within {
                    places.push(0..bytes.len());
                }
            }
        }
        places.sort_by_key(|place| (place.start, place.end));
        places.dedup_by(|next, last| {
            let overlap = next.start < last.end;
            if overlap {
                last.end = last.end.max(next.end);
            }
            overlap
        });
        places
    }

    pub fn redact_text(&self, text: String) -> String {
        match self.redact(text.as_bytes()) {
            Cow::Borrowed(_) => text,
            Cow::Owned(clean) => String::from_utf8_lossy(&clean).into_owned(),
        }
    }
}

impl FromIterator<(String, Result<String, String>)> for Secrets {
    fn from_iter<I: IntoIterator<Item = (String, Result<String, String>)>>(values: I) -> Self {
        Self(values.into_iter().collect())
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// At which ends the bytes at hand go on in others that are not.
#[derive(Debug, Clone, Copy)]
pub struct Cut {
    pub before: bool,
    pub after: bool,
}

impl Cut {
    pub const NONE: Self = Self { before: false, after: false };
}

/// The bytes with something else in those places; never longer than before.
pub fn without(bytes: &[u8], places: &[Range<usize>]) -> Vec<u8> {
    let mut clean = Vec::with_capacity(bytes.len());
    let mut copied = 0;
    for place in places {
        clean.extend_from_slice(&bytes[copied..place.start]);
        if place.len() < REDACTED.len() {
            clean.resize(clean.len() + place.len(), b'*');
        } else {
            clean.extend_from_slice(REDACTED);
        }
        copied = place.end;
    }
    clean.extend_from_slice(&bytes[copied..]);
    clean
}

/// Tells where each occurrence of the value ends, and answers how much of its beginning stands at the end of the bytes.
/// By Knuth, Morris and Pratt: linear, whatever a guest writes of whatever value.
fn each_end(bytes: &[u8], value: &[u8], mut found: impl FnMut(usize)) -> usize {
    // How much of the value's beginning ends at each of its places.
    let mut borders = vec![0; value.len()];
    let mut matched = 0;
    for at in 1..value.len() {
        while matched > 0 && value[at] != value[matched] {
            matched = borders[matched - 1];
        }
        matched += usize::from(value[at] == value[matched]);
        borders[at] = matched;
    }
    let mut matched = 0;
    for (at, byte) in bytes.iter().enumerate() {
        while matched > 0 && *byte != value[matched] {
            matched = borders[matched - 1];
        }
        matched += usize::from(*byte == value[matched]);
        if matched == value.len() {
            found(at + 1);
            matched = borders[matched - 1];
        }
    }
    matched
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keyring(keys: &[u8]) -> Keyring {
        let keys: Vec<_> =
            keys.iter().map(|key| base64::engine::general_purpose::STANDARD.encode([*key; KEY_BYTES])).collect();
        Keyring::parse(&keys.join(", ")).expect("keys")
    }

    #[test]
    fn a_secret_opens_under_its_own_tenant_name_and_key_only() {
        let ours = keyring(&[1]);
        let sealed = ours.seal("acme", "token", "very secret").expect("it is sealed");
        assert!(!sealed.bytes.windows(6).any(|window| window == b"secret"));
        assert_eq!(ours.open("acme", &sealed).expect("it opens"), "very secret");
        assert_ne!(
            ours.seal("acme", "token", "very secret").expect("it is sealed").bytes,
            sealed.bytes,
            "another nonce"
        );
        assert!(ours.open("globex", &sealed).is_err());
        assert!(ours.open("acme", &Sealed { name: "other".into(), ..sealed.clone() }).is_err());
        // The border between tenant and name cannot be moved either.
        assert!(ours.open("acmet", &Sealed { name: "oken".into(), ..sealed.clone() }).is_err());
        let mut changed = sealed.clone();
        changed.bytes[0] ^= 1;
        assert!(ours.open("acme", &changed).is_err());
        let error = keyring(&[2]).open("acme", &sealed).expect_err("another key").to_string();
        assert!(error.contains(&format!("sealed with key {}", sealed.key_id)), "{error}");
    }

    #[test]
    fn keys_can_be_changed_one_after_the_other() {
        let old = keyring(&[1]).seal("acme", "token", "very secret").expect("it is sealed");
        let both = keyring(&[2, 1]);
        assert_eq!(both.open("acme", &old).expect("it opens"), "very secret");
        assert_eq!(both.seal("acme", "token", "very secret").expect("it is sealed").key_id, keyring(&[2]).key_id());
    }

    #[test]
    fn a_key_that_is_none_is_refused_without_showing_it() {
        for (text, says) in [("", "there is no key"), ("AAAA", "has 3 bytes; a key has 32"), ("hunter2!", "not base64")]
        {
            let error = format!("{:#}", Keyring::parse(text).expect_err("no key"));
            assert!(error.contains(says) && !error.contains("hunter2"), "{error}");
        }
        assert!(!format!("{:?}", keyring(&[7])).contains("7, 7"));
        assert!(keyring(&[1]).seal("acme", "pin", "1234").expect_err("too short").to_string().contains("4 bytes"));
    }

    #[test]
    fn values_are_taken_out_wherever_they_stand() {
        let of = |value: &str| Ok(value.to_owned());
        let secrets: Secrets = [
            ("a".to_owned(), of("aaaaaaab")),
            ("b".to_owned(), of("password")),
            ("c".to_owned(), Err("no key".into())),
            ("d".to_owned(), of("mypassword123")),
        ]
        .into_iter()
        .collect();
        assert_eq!(&*secrets.redact(b"mypassword123"), b"[secret]", "and not my[secret]123");
        assert_eq!(
            &*secrets.redact(b"aaaaaaaaab password, passwor aaaaaaabaaaaaaab"),
            b"aa[secret] [secret], passwor [secret][secret]"
        );
        let twice: Secrets = [("a".to_owned(), of("abababab"))].into_iter().collect();
        assert_eq!(&*twice.redact(b"-ababababab-"), b"-[secret]-", "and nothing is left of the second");
        assert!(matches!(secrets.redact(b"nothing of it"), Cow::Borrowed(_)));
        assert_eq!(secrets.redact_text("the password".into()), "the [secret]");
        assert_eq!(format!("{secrets:?}"), r#"{"a", "b", "c", "d"}"#);
    }

    #[test]
    fn parts_of_a_value_are_taken_out_where_the_bytes_were_cut() {
        let secrets: Secrets = [("key".to_owned(), Ok("one-two-three-four".to_owned()))].into_iter().collect();
        let cleaned = |text: &str, before, after| {
            let places = secrets.places(text.as_bytes(), Cut { before, after });
            String::from_utf8(without(text.as_bytes(), &places)).expect("text")
        };
        assert_eq!(cleaned("it is one-t", false, true), "it is *****");
        assert_eq!(cleaned("it is one-t", true, false), "it is one-t", "not cut there");
        assert_eq!(cleaned("three-four it is", true, false), "[secret] it is");
        assert_eq!(cleaned("three-four it is", false, true), "three-four it is");
        assert_eq!(cleaned("two-three", true, true), "[secret]");
        assert_eq!(cleaned("our", true, true), "our", "too short to tell");
    }
}
