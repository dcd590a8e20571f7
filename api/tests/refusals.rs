//! What a state file may not say, and what people read when it does.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use nodelet_api::{DesiredState, from_json, from_toml};

fn problems(text: &str) -> String {
    from_toml::<DesiredState>(text).expect_err("the state was taken").to_string()
}

/// Each bad state, with the exact lines that it gets.
#[test]
fn each_mistake_has_its_sentence() {
    let key = "key = { file = \"/k.asc\" }";
    let table: Vec<(String, &[&str])> = vec![
        (
            "[[packages]]\nname = \"x\"\nverison = \"1\"\n".into(),
            &["3:1: packages[0].verison: there is no field `verison`: did you mean `version`?"],
        ),
        (
            "[[packages]]\nname = \"x\"\nversion = 1.7\n".into(),
            &["3:1: packages[0].version: the number 1.7 can't stand here: write text in quotes, such as \"1.7\""],
        ),
        (
            "[[packages]]\nversion = \"1\"\n".into(),
            &["1:1: packages[0].name: `name` is missing: add it (Its name)"],
        ),
        (
            "[[packages]]\nname = \"x\"\nonChange = \"restart\"\n".into(),
            &["3:1: packages[0].onChange: \"restart\" is not a choice here: write one of \"None\", \"Reload\", \"Restart\", \"Drain\", \"Reboot\" (did you mean \"Restart\"?)"],
        ),
        (
            "[[packages]]\nname = \"x\"\n[[packages]]\nname = \"x\"\n".into(),
            &["4:1: packages[1].name: `x` stands in packages[0] already: merge the two"],
        ),
        (
            "[[packages]]\nname = \"x\"\nstate = \"absent\"\nhold = true\n".into(),
            &["4:1: packages[0].hold: the package is to be absent, so `hold` has no meaning: remove it, or `state = \"absent\"`"],
        ),
        (
            "[[files]]\npath = \"etc/x\"\nmode = \"0999\"\ncontent = \"\"\n".into(),
            &[
                "2:1: files[0].path: `etc/x` is not a path from the root: begin it with a slash, such as `/etc/x`",
                "3:1: files[0].mode: `0999` is not a file mode: write three or four octal digits, such as `0644`",
            ],
        ),
        (
            "[[files]]\npath = \"/etc/x\"\n".into(),
            &["1:1: files[0]: nothing is given: write exactly one of `content`, `contentFrom`"],
        ),
        (
            "[[files]]\npath = \"/etc/x\"\ncontent = \"\"\n[files.contentFrom]\nfile = \"/y\"\n".into(),
            &["4:8: files[0].contentFrom: content and contentFrom are given: keep exactly one of `content`, `contentFrom`"],
        ),
        (
            "[[files]]\npath = \"/etc/x\"\ncontent = \"\"\n[[files]]\npath = \"/etc/x/y\"\ncontent = \"\"\n".into(),
            &["5:1: files[1].path: `/etc/x` is a file by files[0].path, so nothing can lie below it: change one of the two paths"],
        ),
        (
            "[[files]]\npath = \"/etc/x\"\ncontent = \"${node.nam}\"\n".into(),
            &["3:1: files[0].content: there is no variable `${node.nam}`: use one of ${node.name}, ${node.ip}, ${node.arch}, ${node.os}, ${node.osVersion}, ${node.osCodename}, or write `$${node.nam}` for the text itself"],
        ),
        (
            "[[files]]\npath = \"/etc/x\"\nencoding = \"base64\"\ncontent = \"?\"\n".into(),
            &["4:1: files[0].content: this is not base64 (Invalid symbol 63, offset 0.): write what `base64 < FILE` prints"],
        ),
        (
            "[[units]]\nname = \"kubelet\"\nrunning = true\n".into(),
            &["2:1: units[0].name: `kubelet` has no unit suffix: write the full name, such as `kubelet.service` (suffixes: service, socket, target, timer, mount, automount, path, slice, swap, scope, device)"],
        ),
        (
            "[[units]]\nname = \"a.service\"\nmasked = true\nrunning = true\n".into(),
            &["4:1: units[0].running: a masked unit can't have `running`: remove it, or `masked`"],
        ),
        (
            "[[units]]\nname = \"a.service\"\n".into(),
            &["1:1: units[0]: the unit says nothing: add `enabled`, `running`, `masked`, `content` or `dropins`, or remove it"],
        ),
        (
            format!("[[repositories]]\nname = \"r\"\n[repositories.apt]\nuris = [\"ftp://x\"]\nsuites = [\"/\"]\ncomponents = [\"main\"]\n{key}\n"),
            &[
                "4:9: repositories[0].apt.uris[0]: `ftp://x` is not an address: begin it with https://, http:// or file:/, without spaces",
                "6:1: repositories[0].apt.components: a flat repository (its suite ends with `/`) has no components: remove them",
            ],
        ),
        (
            "[[repositories]]\nname = \"r\"\n[repositories.dnf]\nbaseurl = [\"https://x/\"]\nkey = {}\n".into(),
            &["5:1: repositories[0].dnf.key: nothing is given: write exactly one of `file`, `inline`, `secretRef`"],
        ),
        (
            "[kernel]\nswap = \"on\"\nsysctl = { \"ip_forward\" = 1 }\n".into(),
            &[
                "2:1: kernel.swap: \"on\" is not a choice here: write one of \"leave\", \"off\"",
                "3:12: kernel.sysctl.ip_forward: `ip_forward` is not a kernel parameter: write it with dots, such as `net.ipv4.ip_forward`",
                "3:12: kernel.sysctl.ip_forward: the number 1 can't stand here: write text in quotes, such as \"1\"",
            ],
        ),
        (
            "[[units]]\nname = \"a.service\"\nmasked = true\n[[files]]\npath = \"/x\"\ncontent = \"\"\nrestart = [\"a.service\"]\n".into(),
            &["7:12: files[0].restart[0]: `a.service` is masked by this state: remove it here, or unmask it"],
        ),
        (
            "[runtime]\nkind = \"crio\"\n".into(),
            &["2:1: runtime.kind: \"crio\" is not a choice here: write one of \"containerd\", \"docker\", \"cri-o\" (did you mean \"cri-o\"?)"],
        ),
        (
            "[runtime]\nkind = \"docker\"\nsandboxImage = \"x\"\nconfig = { live-restore = false, exec-opts = [] }\n".into(),
            &[
                "3:1: runtime.sandboxImage: docker alone has no sandboxes: remove this, or add the `kubelet` table",
                "4:12: runtime.config.live-restore: without live-restore all containers would stop whenever docker is upgraded or restarted: remove this",
                "4:34: runtime.config.exec-opts: this list takes the place of the preset's: add \"native.cgroupdriver=systemd\" to it, or change `cgroupDriver`",
            ],
        ),
        (
            "[runtime]\nkind = \"containerd\"\n[runtime.config]\nversion = 3\nplugins.\"io.containerd.cri.v1.runtime\".x = \"${node.nam\"\n".into(),
            &[
                "4:1: runtime.config.version: the preset writes version 2, which containerd 1.6 to 2.x read: remove this and use the names of version 2, or write the whole /etc/containerd/config.toml in `files`",
                "5:9: runtime.config.plugins.\"io.containerd.cri.v1.runtime\": this is a name of version 3, and the preset writes version 2: write \"io.containerd.grpc.v1.cri\"",
                "5:40: runtime.config.plugins.\"io.containerd.cri.v1.runtime\".x: a variable begins with `${node.` and has no end: close it with `}`",
            ],
        ),
        (
            "[runtime]\nkind = \"cri-o\"\nconfig = { log_level = \"debug\", crio = { runtime = { cgroup_manager = \"cgroupfs\" } } }\n".into(),
            &[
                "3:12: runtime.config.log_level: CRI-O has all its fields below `crio`: write this as `crio.NAME`",
                "3:54: runtime.config.crio.runtime.cgroup_manager: `cgroupDriver` is \"systemd\": remove this, and say it there",
            ],
        ),
        (
            "[kubelet]\nversion = \"v1.35.8\"\nnodeIP = \"eth0\"\nconfig = { kind = \"X\", failSwapOn = \"no\" }\nextraArgs = { \"--v\" = \"2\", node-ip = \"x\", a = \"$HOME\" }\n".into(),
            &[
                "2:1: kubelet.version: packages have versions without the `v`: write it like `1.35.8`",
                "3:1: kubelet.nodeIP: `eth0` is not an address: write one, such as `192.0.2.7`, or `${node.ip}`",
                "4:12: kubelet.config.kind: the preset writes `apiVersion` and `kind` itself: remove this, and keep only the fields",
                "4:24: kubelet.config.failSwapOn: this can't stand here: write true or false",
                "5:15: kubelet.extraArgs.--v: `--v` is not a flag: write it without dashes before it, such as `v`",
                "5:28: kubelet.extraArgs.node-ip: the preset writes this flag itself: remove it; write `nodeIP`",
                "5:43: kubelet.extraArgs.a: a flag can't hold a line break, or a `$` but in a variable: remove it",
            ],
        ),
        (
            "[kubelet]\nstandalone = true\nconfig.enableServer = true\n[kubelet.bootstrap]\nserver = \"http://x\"\ntokenFile = \"/t\"\n".into(),
            &[
                "3:8: kubelet.config.enableServer: a standalone kubelet has nobody to ask who may do what, so the preset lets nothing listen: remove this, or write the whole /var/lib/kubelet/config.yaml in `files`",
                "4:10: kubelet.bootstrap: a standalone kubelet joins nothing: remove this, or `standalone`",
                "4:10: kubelet.bootstrap: nothing is given: write exactly one of `caFile`, `caInline`",
                "5:1: kubelet.bootstrap.server: `http://x` is not an API server: write it like `https://192.0.2.1:6443`",
            ],
        ),
        (
            "[runtime]\nkind = \"containerd\"\n[kubelet]\nconfig.cgroupDriver = \"cgroupfs\"\n".into(),
            &["4:8: kubelet.config.cgroupDriver: the runtime's is \"systemd\", and the two must be the same: remove this, and write `runtime.cgroupDriver`"],
        ),
        (
            "[runtime]\nkind = \"containerd\"\n[[units]]\nname = \"containerd.service\"\nmasked = true\n".into(),
            &["1:2: runtime: this does not go with the rest of the state: `containerd.service` is masked by this state: remove it here, or unmask it"],
        ),
        ("packages = \"x\"\n".into(), &["1:1: packages: the text \"x\" can't stand here: write a list in brackets, such as [\"x\"]"]),
        ("name = ".into(), &["1:8: not TOML: string values must be quoted, expected literal string"]),
    ];
    for (text, expected) in table {
        assert_eq!(problems(&text).lines().collect::<Vec<_>>(), expected, "for:\n{text}");
    }
}

/// The rules about single fields and those between fields are separate passes: a file is told all of the
/// first, then all of the second, so that no message is a consequence of another.
#[test]
fn all_mistakes_at_once() {
    let text = "color = 1\n[[packages]]\nname = \"-x\"\n[[files]]\nmode = \"x\"\n[[units]]\nname = \"y\"\n";
    assert_eq!(problems(text).lines().count(), 5, "{}", problems(text));
}

#[test]
fn json_is_held_to_the_same_rules() {
    let error = from_json::<DesiredState>(r#"{"packages":[{"name":"x","hold":"yes"}]}"#).expect_err("taken");
    assert_eq!(error.to_string(), "packages[0].hold: the text \"yes\" can't stand here: write true or false");
    let error =
        from_json::<DesiredState>(r#"{"kubelet":{"config":{"a":null,"b":18446744073709551615}}}"#).expect_err("taken");
    let expected = "kubelet.config.a: nothing can't stand here: leave the field out, or give it a value\n\
                    kubelet.config.b: 18446744073709551615 is too large: write at most 9223372036854775807";
    assert_eq!(error.to_string(), expected);
    assert!(from_json::<DesiredState>("{").expect_err("taken").to_string().starts_with("not JSON"));
}

#[test]
fn the_documented_example_is_valid() {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../config/state.example.toml")).unwrap();
    let state: DesiredState = from_toml(&text).unwrap_or_else(|problems| panic_with(&problems.to_string()));
    assert!(!state.packages.is_empty() && !state.files.is_empty() && !state.units.is_empty());
    assert!(!state.repositories.is_empty() && !state.kernel.is_empty());
    let expanded = state.expand();
    assert!(expanded.packages.len() == state.packages.len() + 2 && expanded.files.len() == state.files.len() + 3);
}

#[allow(clippy::panic)]
fn panic_with(text: &str) -> DesiredState {
    panic!("{text}")
}
