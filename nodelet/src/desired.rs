//! A desired state made concrete for this host: contents as bytes, names for its package manager.
//!
//! Everything that ends as a file (repositories, keys, unit files, drop-ins, kernel settings) becomes a
//! file here, so that the plan treats them all alike.

use crate::content::Content;
use crate::contents::Contents;
use crate::facts::Facts;
use crate::key;
use crate::root::Root;
use crate::settings::Manager;
use jiff::Timestamp;
use nodelet_api::state::{
    ContentRef, Encoding, File, Kernel, KeySource, Origin, Package, Presence, Repository, Swap, Unit, base64_bytes,
};
use nodelet_api::text::PackageVersion;
use nodelet_api::{DesiredState, Disruption, Drift, FieldPath, Problems};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// What is to be on this host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// Files by path.
    pub files: BTreeMap<String, TargetFile>,
    /// Paths where nothing is to be.
    pub absent: BTreeMap<String, Followers>,
    /// Paths that left the state: once they are as they were before nodelet, nodelet owns them no more.
    pub released: BTreeSet<String>,
    /// Files of the host that contents and keys were read from.
    pub reads: BTreeSet<String>,
    /// Packages.
    pub packages: Vec<TargetPackage>,
    /// Units.
    pub units: Vec<TargetUnit>,
    /// Kernel modules.
    pub modules: BTreeSet<String>,
    /// Kernel parameters.
    pub sysctl: BTreeMap<String, String>,
    /// Swap is to be off.
    pub swap_off: bool,
}

/// A file that is to be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetFile {
    /// What is in it.
    pub content: Content,
    /// Its permission bits.
    pub mode: u32,
    /// Its user.
    pub owner: String,
    /// Its group.
    pub group: String,
    /// What it is for.
    pub purpose: Purpose,
    /// Units that take notice when it changes.
    pub followers: Followers,
    /// What becomes of it when something else changes it.
    pub drift: Drift,
    /// What its change disturbs, when the state says so.
    pub on_change: Option<Disruption>,
    /// Its content is nobody's business: it came from a Secret, or takes the place of one that did.
    pub secret: bool,
}

/// Units that take notice of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Followers {
    /// Units that restart when it changes.
    pub restart: BTreeSet<String>,
    /// Units that reload when it changes.
    pub reload: BTreeSet<String>,
}

/// What a file is for, which decides when it is written and what follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Part of the package repository of this name: before packages.
    Repository(String),
    /// A unit file or drop-in: systemd reads its units again.
    Unit,
    /// Anything else.
    Plain,
}

/// A package that is to be there, or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetPackage {
    /// Its name for this host's package manager.
    pub name: String,
    /// Whether it is to be there.
    pub present: bool,
    /// The version, where one is asked for.
    pub version: Option<PackageVersion>,
    /// Nothing but nodelet may change it.
    pub hold: bool,
    /// Its version may go down.
    pub allow_downgrade: bool,
    /// Units that restart when its version changes.
    pub restart: BTreeSet<String>,
    /// What becomes of it when something else changes it.
    pub drift: Drift,
    /// What its change disturbs, when the state says so.
    pub on_change: Option<Disruption>,
}

/// A unit's state that is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetUnit {
    /// Its name.
    pub name: String,
    /// Whether it starts at boot.
    pub enabled: Option<bool>,
    /// Whether it can't be started.
    pub masked: bool,
    /// Whether it runs.
    pub running: Option<bool>,
    /// It left the state, and what nodelet did to it is taken back.
    pub left: bool,
    /// What becomes of it when something else changes it.
    pub drift: Drift,
    /// What its change disturbs, when the state says so.
    pub on_change: Option<Disruption>,
}

/// Modules to load at boot.
const MODULES_FILE: &str = "/etc/modules-load.d/nodelet.conf";
/// Parameters to set at boot. 90: behind the distribution's own files, before an administrator's 99.
const SYSCTL_FILE: &str = "/etc/sysctl.d/90-nodelet.conf";

/// Makes a state concrete. All that can't be made (a missing key file, an unknown variable) is reported.
pub fn resolve(
    state: &DesiredState,
    manager: Manager,
    facts: &Facts,
    contents: &Contents,
    root: &Root,
) -> Result<Target, Problems> {
    let (target, problems) = (Target::default(), Problems::default());
    let mut resolver = Resolver { manager, facts, contents, root, target, problems };
    let top = FieldPath::root();
    for (index, repository) in state.repositories.iter().enumerate() {
        resolver.repository(repository, &top.key("repositories").index(index));
    }
    for package in &state.packages {
        resolver.package(package);
    }
    for (index, file) in state.files.iter().enumerate() {
        resolver.file(file, &top.key("files").index(index));
    }
    for (index, unit) in state.units.iter().enumerate() {
        resolver.unit(unit, &state.units, &top.key("units").index(index));
    }
    resolver.kernel(&state.kernel);
    resolver.problems.into_result(resolver.target)
}

struct Resolver<'a> {
    manager: Manager,
    facts: &'a Facts,
    contents: &'a Contents,
    root: &'a Root,
    target: Target,
    problems: Problems,
}

impl Resolver<'_> {
    fn repository(&mut self, repository: &Repository, at: &FieldPath) {
        let name = repository.name.as_str();
        let (definition, key_directory) = match self.manager {
            Manager::Dnf => (format!("/etc/yum.repos.d/{name}.repo"), "/etc/pki/rpm-gpg"),
            _ => (format!("/etc/apt/sources.list.d/{name}.sources"), "/etc/apt/keyrings"),
        };
        let key_path = |binary: bool| format!("{key_directory}/nodelet-{name}.{}", if binary { "gpg" } else { "asc" });
        if repository.state == Presence::Absent {
            let paths = [definition, key_path(false), key_path(true)];
            self.target.absent.extend(paths.into_iter().map(|path| (path, Followers::default())));
            return;
        }
        let (key, at) = match (self.manager, &repository.apt, &repository.dnf) {
            (Manager::Dnf, _, Some(dnf)) => (&dnf.key, at.key("dnf")),
            (Manager::Dnf, ..) | (_, None, _) => return,
            (_, Some(apt), _) => (&apt.key, at.key("apt")),
        };
        let (source, at_key) = (key, at.key("key"));
        let Some(key) = self.key(source, &at_key) else { return };
        if let Err(wrong) = key::check(&key, Timestamp::now()) {
            let at = at_key.key(if source.inline.is_some() { "inline" } else { "file" });
            let named = source.file.as_ref().map(|path| format!("{path}: ")).unwrap_or_default();
            self.problems.add(at, format!("{named}{wrong}"));
            return;
        }
        let binary = !key.starts_with(b"-----BEGIN");
        let key_file = key_path(binary);
        let text = match (&repository.apt, &repository.dnf) {
            (_, Some(dnf)) if self.manager == Manager::Dnf => {
                let addresses = self.texts(&dnf.baseurl, &at.key("baseurl"));
                format!(
                    "# Written by nodelet.\n[{name}]\nname={name}\nbaseurl={}\nenabled=1\ngpgcheck=1\nrepo_gpgcheck={}\ngpgkey=file://{key_file}\n",
                    addresses.join("\n        "),
                    u8::from(dnf.signed_metadata),
                )
            }
            (Some(apt), _) => {
                let mut text = format!(
                    "# Written by nodelet.\nTypes: deb\nURIs: {}\nSuites: {}\n",
                    self.texts(&apt.uris, &at.key("uris")).join(" "),
                    self.texts(&apt.suites, &at.key("suites")).join(" "),
                );
                if !apt.components.is_empty() {
                    let _ =
                        writeln!(text, "Components: {}", self.texts(&apt.components, &at.key("components")).join(" "));
                }
                let _ = writeln!(text, "Signed-By: {key_file}");
                text
            }
            _ => return,
        };
        let purpose = || Purpose::Repository(name.to_owned());
        let file = |content| TargetFile { drift: repository.drift, ..system_file(content, purpose()) };
        self.place(key_file, file(key));
        self.place(definition, file(text.into_bytes()));
    }

    fn key(&mut self, key: &KeySource, at: &FieldPath) -> Option<Vec<u8>> {
        if let Some(inline) = &key.inline {
            return Some(inline.clone().into_bytes());
        }
        if let Some(path) = &key.file {
            return self.read(path.as_str(), &at.key("file"));
        }
        self.handed_out(&ContentRef::new(Origin::Secret, key.secret_ref.as_ref()?), at.key("secretRef"))
    }

    /// A content that the cluster handed out with the state.
    fn handed_out(&mut self, reference: &ContentRef, at: FieldPath) -> Option<Vec<u8>> {
        let content = self.contents.get(reference);
        if content.is_none() {
            self.problems.add(at, self.contents.why_not(reference));
        }
        content
    }

    fn package(&mut self, package: &Package) {
        let own_name = match self.manager {
            Manager::Dnf => &package.dnf_name,
            _ => &package.apt_name,
        };
        self.target.packages.push(TargetPackage {
            name: own_name.as_ref().unwrap_or(&package.name).to_string(),
            present: package.state == Presence::Present,
            version: package.version.clone(),
            hold: package.hold,
            allow_downgrade: package.allow_downgrade,
            restart: package.restart.iter().map(ToString::to_string).collect(),
            drift: package.drift,
            on_change: package.on_change,
        });
    }

    fn file(&mut self, file: &File, at: &FieldPath) {
        let Some(content) = self.content(file, at) else { return };
        let names = |units: &[nodelet_api::text::UnitName]| units.iter().map(ToString::to_string).collect();
        let target = TargetFile {
            content: content.into(),
            mode: file.mode_bits(),
            owner: file.owner_name().to_owned(),
            group: file.group_name().to_owned(),
            purpose: if file.path.as_str().starts_with("/etc/systemd/system/") {
                Purpose::Unit
            } else {
                Purpose::Plain
            },
            followers: Followers { restart: names(&file.restart), reload: names(&file.reload) },
            drift: file.drift,
            on_change: file.on_change,
            secret: file.content_from.as_ref().is_some_and(|from| from.secret_ref.is_some()),
        };
        self.place(file.path.to_string(), target);
    }

    fn content(&mut self, file: &File, at: &FieldPath) -> Option<Vec<u8>> {
        match (&file.content, &file.content_from, file.encoding) {
            (Some(text), _, Encoding::Plain) => self.text(text, &at.key("content")).map(String::into_bytes),
            (Some(text), _, Encoding::Base64) => base64_bytes(text).ok(),
            (None, Some(from), _) => {
                let at = at.key("contentFrom");
                if let Some(path) = &from.file {
                    return self.read(path.as_str(), &at.key("file"));
                }
                let (origin, reference, at) = match (&from.secret_ref, &from.config_map_ref) {
                    (Some(secret), _) => (Origin::Secret, secret, at.key("secretRef")),
                    (None, map) => (Origin::ConfigMap, map.as_ref()?, at.key("configMapRef")),
                };
                self.handed_out(&ContentRef::new(origin, reference), at)
            }
            (None, None, _) => None,
        }
    }

    fn unit(&mut self, unit: &Unit, all: &[Unit], at: &FieldPath) {
        // A template can't run; what runs of it are its instances.
        let concerned = |other: &&Unit| {
            other.name == unit.name || template_of(other.name.as_str()).as_deref() == Some(unit.name.as_str())
        };
        let runs = |other: &&Unit| other.running != Some(false) && !other.name.as_str().contains("@.");
        let restart = || all.iter().filter(concerned).filter(runs).map(|other| other.name.to_string()).collect();
        let contents = unit.content.iter().map(|content| (unit.path(), content, at.key("content")));
        let dropins = unit.dropins.iter().enumerate().map(|(index, dropin)| {
            (unit.dropin_path(dropin), &dropin.content, at.key("dropins").index(index).key("content"))
        });
        for (path, content, at) in contents.chain(dropins).collect::<Vec<_>>() {
            if let Some(text) = self.text(content, &at) {
                let file = system_file(text.into_bytes(), Purpose::Unit);
                let followers = Followers { restart: restart(), ..Followers::default() };
                self.place(path, TargetFile { followers, drift: unit.drift, on_change: unit.on_change, ..file });
            }
        }
        self.target.units.push(TargetUnit {
            name: unit.name.to_string(),
            enabled: unit.enabled,
            masked: unit.masked,
            running: unit.running,
            left: false,
            drift: unit.drift,
            on_change: unit.on_change,
        });
    }

    fn kernel(&mut self, kernel: &Kernel) {
        if !kernel.modules.is_empty() {
            // Sorted, because revisions of a cluster are: when one takes over from a file that says the same, this file
            // must not change. Modules that others need come along by themselves.
            self.target.modules = kernel.modules.iter().map(ToString::to_string).collect();
            let header = "# Written by nodelet.\n".to_owned();
            let lines = self.target.modules.iter().fold(header, |all, name| all + name + "\n");
            self.place(MODULES_FILE.to_owned(), system_file(lines.into_bytes(), Purpose::Plain));
        }
        if !kernel.sysctl.is_empty() {
            let mut lines = "# Written by nodelet.\n".to_owned();
            for (key, value) in &kernel.sysctl {
                let _ = writeln!(lines, "{key} = {value}");
                self.target.sysctl.insert(key.to_string(), value.split_whitespace().collect::<Vec<_>>().join(" "));
            }
            self.place(SYSCTL_FILE.to_owned(), system_file(lines.into_bytes(), Purpose::Plain));
        }
        self.target.swap_off = kernel.swap == Swap::Off;
    }

    fn place(&mut self, path: String, file: TargetFile) {
        self.target.files.insert(path, file);
    }

    fn text(&mut self, text: &str, at: &FieldPath) -> Option<String> {
        self.facts.substitute(text).map_err(|message| self.problems.add(at.clone(), message)).ok()
    }

    fn texts(&mut self, texts: &[String], at: &FieldPath) -> Vec<String> {
        texts.iter().enumerate().filter_map(|(index, text)| self.text(text, &at.index(index))).collect()
    }

    fn read(&mut self, path: &str, at: &FieldPath) -> Option<Vec<u8>> {
        self.target.reads.insert(path.to_owned());
        let read = std::fs::read(self.root.join(path));
        read.map_err(|error| {
            self.problems.add(at.clone(), format!("reading {path}: {error}: put the file there, or name another"));
        })
        .ok()
    }
}

/// The template that a unit is an instance of: `worker@.service` for `worker@one.service`.
pub fn template_of(unit: &str) -> Option<String> {
    let (stem, rest) = unit.split_once('@')?;
    let (_, suffix) = rest.rsplit_once('.').filter(|(instance, _)| !instance.is_empty())?;
    Some(format!("{stem}@.{suffix}"))
}

fn system_file(content: Vec<u8>, purpose: Purpose) -> TargetFile {
    TargetFile {
        content: content.into(),
        mode: 0o644,
        owner: "root".into(),
        group: "root".into(),
        purpose,
        followers: Followers::default(),
        drift: Drift::Repair,
        on_change: None,
        secret: false,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use nodelet_api::from_toml;

    /// Just enough to be a public key.
    const KEY: &str = "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nxgYEAAAAZBY=\n-----END PGP PUBLIC KEY BLOCK-----\n";

    const STATE: &str = r#"
        [[repositories]]
        name = "r"
        [repositories.apt]
        uris = ["https://x/${node.arch}"]
        suites = ["stable"]
        components = ["main"]
        key = { inline = """-----BEGIN PGP PUBLIC KEY BLOCK-----

xgYEAAAAZBY=
-----END PGP PUBLIC KEY BLOCK-----""" }
        [repositories.dnf]
        baseurl = ["https://x/rpm"]
        key = { file = "/keys/r.asc" }
        [[repositories]]
        name = "old"
        state = "absent"
        [[packages]]
        name = "containerd"
        dnfName = "containerd.io"
        [[units]]
        name = "a.service"
        running = true
        [[units.dropins]]
        name = "1.conf"
        content = "[Service]"
        [kernel]
        modules = ["overlay"]
        sysctl = { "net.ipv4.ip_forward" = "1" }
    "#;

    fn resolved(manager: Manager, files: &[(&str, &str)]) -> Result<Target, Problems> {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        for (path, text) in files {
            std::fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
            std::fs::write(root.join(path), text).unwrap();
        }
        let facts = Facts::gather(&root, "n1");
        resolve(&from_toml(STATE).unwrap(), manager, &facts, &Contents::default(), &root)
    }

    #[test]
    fn one_state_serves_both_package_managers() {
        let apt = resolved(Manager::Apt, &[]).unwrap();
        let sources =
            String::from_utf8(apt.files["/etc/apt/sources.list.d/r.sources"].content.bytes().to_vec()).unwrap();
        assert!(sources.contains("Signed-By: /etc/apt/keyrings/nodelet-r.asc\n"), "{sources}");
        assert!(!sources.contains("${"), "{sources}");
        assert_eq!(apt.packages[0].name, "containerd");
        assert!(apt.absent.contains_key("/etc/apt/sources.list.d/old.sources"));

        let dnf = resolved(Manager::Dnf, &[("/keys/r.asc", KEY)]).unwrap();
        let repo = String::from_utf8(dnf.files["/etc/yum.repos.d/r.repo"].content.bytes().to_vec()).unwrap();
        assert!(repo.contains("gpgkey=file:///etc/pki/rpm-gpg/nodelet-r.asc\n"), "{repo}");
        assert_eq!(dnf.packages[0].name, "containerd.io");
    }

    #[test]
    fn a_missing_key_is_found_before_anything_changes() {
        let problems = resolved(Manager::Dnf, &[]).unwrap_err().to_string();
        assert!(problems.starts_with("repositories[0].dnf.key.file: reading /keys/r.asc"), "{problems}");
    }

    #[test]
    fn a_dropin_restarts_its_unit() {
        let target = resolved(Manager::Apt, &[]).unwrap();
        let dropin = &target.files["/etc/systemd/system/a.service.d/1.conf"];
        assert_eq!(
            (dropin.purpose.clone(), dropin.followers.restart.iter().map(String::as_str).collect::<Vec<_>>()),
            (Purpose::Unit, vec!["a.service"])
        );
    }
}
