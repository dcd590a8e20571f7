//! Anything that serializes parses back equal, in TOML and in JSON.
#![allow(clippy::unwrap_used, missing_docs)]

use nodelet_api::preset::{Bootstrap, CgroupDriver, Kubelet, PackageNames, Runtime, RuntimeKind};
use nodelet_api::state::{
    AptRepository, ContentFrom, DnfRepository, Dropin, Encoding, File, Health, Kernel, KeyRef, KeySource, Package,
    Presence, Repository, Swap, Unit,
};
use nodelet_api::{DesiredState, Disruption, Document, Drift, Problems, from_json, from_toml};
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use serde_json::Value;

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
            restart: if hold { vec!["a.service".try_into().unwrap()] } else { vec![] },
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

fn health() -> impl Strategy<Value = Health> {
    (2..9_u32, 0..2_u32, any::<bool>()).prop_map(|(timeout_seconds, stable_seconds, all)| Health {
        timeout_seconds,
        stable_seconds,
        units: if all { vec!["a.service".try_into().unwrap()] } else { vec![] },
        cri: all.then(|| "unix:///run/x.sock".to_owned()),
        kubelet: all.then(|| "http://127.0.0.1:1/healthz".to_owned()),
    })
}

/// Configuration of another program: anything but a variable.
fn table() -> impl Strategy<Value = serde_json::Map<String, Value>> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-1e9..1e9_f64).prop_map(Value::from),
        content().prop_map(Value::from),
    ];
    let value = leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(Value::from),
            btree_map("[a-zA-Z.ü\"]{1,6}", inner, 0..3).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    });
    btree_map("x[a-zA-Z.\"]{0,6}", value, 0..4).prop_map(|map| map.into_iter().collect())
}

fn runtime() -> impl Strategy<Value = Runtime> {
    (
        prop_oneof![Just(RuntimeKind::Containerd), Just(RuntimeKind::Docker), Just(RuntimeKind::CriO)],
        option::of(text("[0-9][0-9a-z.+~:*-]{0,9}")),
        option::of(text("[a-z][a-z0-9+.-]{0,9}")),
        any::<(bool, bool)>(),
        option::of("[a-z.]{1,9}/pause:[0-9.]{1,4}"),
        table(),
    )
        .prop_map(|(kind, version, apt_name, (hold, systemd), sandbox_image, config)| Runtime {
            kind,
            version,
            package: PackageNames { apt_name, ..PackageNames::default() },
            hold,
            cgroup_driver: if systemd { CgroupDriver::Systemd } else { CgroupDriver::Cgroupfs },
            sandbox_image,
            config: if kind == RuntimeKind::CriO {
                [("crio".to_owned(), Value::Object(config))].into_iter().collect()
            } else {
                config
            },
        })
}

fn kubelet() -> impl Strategy<Value = Kubelet> {
    let bootstrap = (any::<bool>(), "[a-zA-Z0-9\n]{0,40}").prop_map(|(file, body)| Bootstrap {
        server: "https://[2001:db8::1]:6443".to_owned(),
        ca_file: file.then(|| "/etc/ä \"/ca.crt".try_into().unwrap()),
        ca_inline: (!file).then(|| format!("-----BEGIN CERTIFICATE-----\n{body}")),
        token_file: "/run/token".try_into().unwrap(),
    });
    let value = "[^$\\p{Cc}]{0,12}";
    (
        option::of(text("1\\.[0-9]{1,2}\\.[0-9](-[0-9.*]{1,3})?")),
        any::<bool>(),
        table(),
        btree_map("x-[a-z-]{0,8}", value, 0..3),
        option::of(Just("${node.ip}".to_owned())),
        option::of(bootstrap),
        any::<bool>(),
    )
        .prop_map(|(version, hold, config, extra_args, node_ip, bootstrap, standalone)| Kubelet {
            version,
            package: PackageNames::default(),
            hold,
            config,
            extra_args,
            node_ip,
            standalone: standalone && bootstrap.is_none(),
            bootstrap,
        })
}

/// A name that a preset uses too, as often as not.
fn named(names: &'static [&'static str]) -> impl Strategy<Value = Option<&'static str>> {
    option::of(proptest::sample::select(names))
}

/// A state with presets, some of whose own entries have the names that presets use.
fn preset_state() -> impl Strategy<Value = DesiredState> {
    (
        state(),
        option::of(runtime()),
        option::of(kubelet()),
        named(&["containerd", "docker.io", "cri-o", "kubelet"]),
        named(&["/etc/docker/daemon.json", "/var/lib/kubelet/config.yaml"]),
        named(&["docker.service", "kubelet.service", "containerd.service"]),
        named(&["/etc/systemd/system/kubelet.service.d/20-nodelet.conf"]),
    )
        .prop_map(|(mut state, mut runtime, kubelet, package, file, unit, dropin)| {
            if let Some(runtime) = runtime.as_mut().filter(|runtime| runtime.kind == RuntimeKind::Docker)
                && kubelet.is_none()
            {
                runtime.sandbox_image = None;
            }
            if let (Some(name), Some(own)) = (package, state.packages.first_mut()) {
                own.name = name.try_into().unwrap();
            }
            if let (Some(path), Some(own)) = (file, state.files.first_mut()) {
                own.path = path.try_into().unwrap();
            }
            if let (Some(path), Some(own)) = (dropin, state.files.get_mut(1)) {
                own.path = path.try_into().unwrap();
            }
            if let (Some(name), Some(own)) = (unit, state.units.first_mut()) {
                own.name = name.try_into().unwrap();
            }
            DesiredState { runtime, kubelet, ..state }
        })
}

fn problems_of(state: &DesiredState) -> String {
    let mut problems = Problems::default();
    state.check(&mut problems);
    problems.to_string()
}

/// A state that keeps the rules between entries: names and paths stand once.
fn state() -> impl Strategy<Value = DesiredState> {
    (
        vec(repository(), 0..3),
        vec(package(), 0..4),
        vec(file(), 0..4),
        vec(unit(), 0..4),
        option::of(kernel()),
        health(),
    )
        .prop_map(|(mut repositories, mut packages, mut files, mut units, kernel, health)| {
            repositories.sort_by(|a, b| a.name.cmp(&b.name));
            repositories.dedup_by(|a, b| a.name == b.name);
            packages.sort_by(|a, b| a.name.cmp(&b.name));
            packages.dedup_by(|a, b| a.name == b.name);
            files.sort_by(|a, b| a.path.cmp(&b.path));
            files.dedup_by(|a, b| a.path == b.path);
            units.sort_by(|a, b| a.name.cmp(&b.name));
            units.dedup_by(|a, b| a.name == b.name);
            DesiredState {
                repositories,
                packages,
                files,
                units,
                kernel: kernel.unwrap_or_default(),
                health,
                ..DesiredState::default()
            }
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

    /// Whatever a state says through presets: it can be written down, and it stands for a state that is valid, that
    /// can be written down as well, and that stands for itself.
    #[test]
    fn expansions(state in preset_state()) {
        prop_assert_eq!(problems_of(&state), "");
        let text = toml::to_string(&state).unwrap();
        prop_assert_eq!(from_toml::<DesiredState>(&text).map_err(|p| format!("{p}\n{text}")), Ok(state.clone()));

        let expanded = state.expand();
        prop_assert_eq!((&expanded.runtime, &expanded.kubelet), (&None, &None));
        prop_assert_eq!(problems_of(&expanded), "");
        prop_assert_eq!(&expanded.expand(), &expanded);
        let text = toml::to_string_pretty(&expanded).unwrap();
        prop_assert_eq!(from_toml::<DesiredState>(&text).map_err(|p| format!("{p}\n{text}")), Ok(expanded.clone()));
        let text = serde_json::to_string(&expanded).unwrap();
        prop_assert_eq!(from_json::<DesiredState>(&text).map_err(|p| format!("{p}\n{text}")), Ok(expanded.clone()));

        // What the state says itself is still there.
        prop_assert!(state.packages.iter().all(|own| expanded.packages.contains(own)));
        prop_assert!(state.files.iter().all(|own| expanded.files.contains(own)));
        for own in &state.units {
            let merged = expanded.units.iter().find(|unit| unit.name == own.name);
            prop_assert!(merged.is_some_and(|unit| own.dropins.iter().all(|dropin| unit.dropins.contains(dropin))));
        }
    }
}
