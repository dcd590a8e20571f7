//! Anything that serializes parses back equal, in TOML and in JSON.
#![allow(clippy::unwrap_used, missing_docs)]

use nodelet_api::state::{
    AptRepository, ContentFrom, DnfRepository, Dropin, Encoding, File, Kernel, KeyRef, KeySource, Package, Presence,
    Repository, Swap, Unit,
};
use nodelet_api::{DesiredState, Disruption, Drift, from_json, from_toml};
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;

/// A text type made from a pattern that its form allows.
fn text<T: TryFrom<String, Error = String> + std::fmt::Debug>(pattern: &'static str) -> impl Strategy<Value = T> {
    pattern.prop_map(|text: String| T::try_from(text).unwrap())
}

fn disruption() -> impl Strategy<Value = Option<Disruption>> {
    option::of(prop_oneof![
        Just(Disruption::None),
        Just(Disruption::Reload),
        Just(Disruption::Restart),
        Just(Disruption::Drain),
        Just(Disruption::Reboot)
    ])
}

fn key_ref() -> impl Strategy<Value = KeyRef> {
    ("[a-z]{1,8}", "[a-z]{1,8}", ".{0,8}").prop_map(|(namespace, name, key)| KeyRef { namespace, name, key })
}

fn key_source() -> impl Strategy<Value = KeySource> {
    prop_oneof![
        text("(/[a-z.ü ]{1,6}x){1,3}").prop_map(|file| KeySource { file: Some(file), ..Default::default() }),
        ".{0,40}".prop_map(|body| KeySource {
            inline: Some(format!("-----BEGIN PGP PUBLIC KEY BLOCK-----\n{body}\n")),
            ..Default::default()
        }),
        key_ref().prop_map(|secret| KeySource { secret_ref: Some(secret), ..Default::default() }),
    ]
}

fn repository() -> impl Strategy<Value = Repository> {
    let apt = (vec("https://[a-z]{1,9}/", 1..3), key_source()).prop_map(|(uris, key)| AptRepository {
        uris,
        suites: vec!["stable".into()],
        components: vec!["main".into()],
        key,
    });
    let dnf = (vec("https://[a-z]{1,9}/", 1..3), key_source(), any::<bool>())
        .prop_map(|(baseurl, key, signed_metadata)| DnfRepository { baseurl, key, signed_metadata });
    (text("[a-z][a-z0-9.-]{0,9}"), apt, option::of(dnf)).prop_map(|(name, apt, dnf)| Repository {
        name,
        state: Presence::Present,
        drift: Drift::Report,
        apt: Some(apt),
        dnf,
    })
}

fn package() -> impl Strategy<Value = Package> {
    (
        text("[a-z][a-z0-9+.-]{0,9}"),
        option::of(text("[a-z][a-z0-9+.-]{0,9}")),
        text("[0-9][0-9a-z.+~:*-]{0,9}"),
        any::<bool>(),
        any::<bool>(),
        disruption(),
    )
        .prop_map(|(name, apt_name, version, hold, allow_downgrade, on_change)| Package {
            name,
            apt_name,
            dnf_name: None,
            version: Some(version),
            hold,
            state: Presence::Present,
            allow_downgrade,
            drift: if hold { Drift::RepairWithGrant } else { Drift::Repair },
            on_change,
        })
}

/// Any text but the start of a variable, which has rules of its own.
fn content() -> impl Strategy<Value = String> {
    any::<String>().prop_map(|text| text.replace("${node.", ""))
}

fn file() -> impl Strategy<Value = File> {
    let from = prop_oneof![
        key_ref().prop_map(|secret| ContentFrom { secret_ref: Some(secret), ..Default::default() }),
        key_ref().prop_map(|map| ContentFrom { config_map_ref: Some(map), ..Default::default() }),
        text("/src/[a-z]{1,5}").prop_map(|file| ContentFrom { file: Some(file), ..Default::default() }),
    ];
    let body = prop_oneof![
        content().prop_map(|text| (Some(text), None, Encoding::Plain)),
        Just((Some("AAEC".into()), None, Encoding::Base64)),
        from.prop_map(|from| (None, Some(from), Encoding::Plain)),
    ];
    (
        text("/etc/[a-zäöü \"'#]{1,9}x"),
        option::of(text("[0-7]{4}")),
        option::of(text("[a-z][a-z0-9-]{0,8}")),
        body,
        vec(text("[a-z]{1,8}\\.service"), 0..2),
        disruption(),
    )
        .prop_map(|(path, mode, owner, (content, content_from, encoding), restart, on_change)| File {
            path,
            mode,
            group: owner.clone(),
            owner,
            content,
            content_from,
            encoding,
            restart,
            reload: vec![],
            drift: Drift::default(),
            on_change,
        })
}

fn unit() -> impl Strategy<Value = Unit> {
    let dropins = btree_map("[0-9]{2}-[a-z]{1,5}\\.conf", content(), 0..3).prop_map(|entries| {
        entries.into_iter().map(|(name, content)| Dropin { name: name.try_into().unwrap(), content }).collect()
    });
    (
        text("[a-z]{1,8}(@[a-z]{1,3})?\\.(service|socket|timer)"),
        any::<bool>(),
        option::of(any::<bool>()),
        option::of(content()),
        dropins,
        disruption(),
    )
        .prop_map(|(name, enabled, running, content, dropins, on_change)| Unit {
            name,
            enabled: Some(enabled),
            masked: false,
            running,
            content,
            dropins,
            drift: Drift::Report,
            on_change,
        })
}

fn kernel() -> impl Strategy<Value = Kernel> {
    (btree_map(text("net\\.[a-z_]{1,8}"), "[0-9a-z]{1,4}", 0..3), any::<bool>()).prop_map(|(sysctl, off)| Kernel {
        modules: vec!["overlay".try_into().unwrap()],
        sysctl,
        swap: if off { Swap::Off } else { Swap::Leave },
    })
}

/// A state that keeps the rules between entries: names and paths stand once.
fn state() -> impl Strategy<Value = DesiredState> {
    (vec(repository(), 0..3), vec(package(), 0..4), vec(file(), 0..4), vec(unit(), 0..4), option::of(kernel()))
        .prop_map(|(mut repositories, mut packages, mut files, mut units, kernel)| {
            repositories.sort_by(|a, b| a.name.cmp(&b.name));
            repositories.dedup_by(|a, b| a.name == b.name);
            packages.sort_by(|a, b| a.name.cmp(&b.name));
            packages.dedup_by(|a, b| a.name == b.name);
            files.sort_by(|a, b| a.path.cmp(&b.path));
            files.dedup_by(|a, b| a.path == b.path);
            units.sort_by(|a, b| a.name.cmp(&b.name));
            units.dedup_by(|a, b| a.name == b.name);
            DesiredState { repositories, packages, files, units, kernel: kernel.unwrap_or_default() }
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn toml(state in state()) {
        let text = toml::to_string(&state).unwrap();
        prop_assert_eq!(from_toml::<DesiredState>(&text).map_err(|p| format!("{p}\n{text}")), Ok(state));
    }

    #[test]
    fn json(state in state()) {
        let text = serde_json::to_string(&state).unwrap();
        prop_assert_eq!(from_json::<DesiredState>(&text).map_err(|p| format!("{p}\n{text}")), Ok(state));
    }
}
