//! Signed repositories, as real apt, rpm and dnf see them, in private roots.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use common::{attempt, run};
use packaging::arch::Arch;
use packaging::key::SigningKey;
use packaging::package::Package;
use packaging::repository::apt::AptOptions;
use packaging::repository::{apt, dnf};
use packaging::{deb, rpm};

/// 2024-01-01.
const TIME: i64 = 1_704_067_200;
const DAY: i64 = 86_400;

fn key() -> SigningKey {
    SigningKey::generate("Test <test@example.org>", TIME, None).unwrap()
}

fn versions() -> [Package; 2] {
    ["1.0", "1.1"].map(|version| {
        Package::new("demo", version).config_file("/etc/demo.conf", 0o644, format!("version={version}\n"))
    })
}

/// apt with every directory of its own, so that the machine's is neither read nor written.
struct Apt {
    root: PathBuf,
}

impl Apt {
    fn new(directory: &Path, repository: &Path, key: &SigningKey) -> Self {
        let root = directory.join("apt-root");
        for part in ["etc/apt/apt.conf.d", "etc/apt/preferences.d", "state/lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(root.join(part)).unwrap();
        }
        fs::write(root.join("status"), "").unwrap();
        // Named by APT_CONFIG and thus read before anything else: the machine's own settings stay out of it. The
        // private directories are not readable by apt's own user.
        let configuration = format!(
            "Dir \"{}\";\nDir::Etc \"etc/apt\";\nDir::State \"state\";\nDir::State::status \"../status\";\n\
             Dir::Cache \"cache\";\nAPT::Sandbox::User \"root\";\nAPT::Architecture \"{}\";\n",
            root.display(),
            Arch::host().unwrap().deb()
        );
        fs::write(root.join("apt.conf"), configuration).unwrap();
        let keyring = root.join("key.asc");
        fs::write(&keyring, key.public_armored().unwrap()).unwrap();
        let sources = format!(
            "Types: deb\nURIs: file://{}\nSuites: stable\nComponents: main\nSigned-By: {}\n",
            repository.display(),
            keyring.display()
        );
        fs::create_dir_all(root.join("etc/apt/sources.list.d")).unwrap();
        fs::write(root.join("etc/apt/sources.list.d/test.sources"), sources).unwrap();
        Self { root }
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Output {
        let configuration = self.root.join("apt.conf");
        attempt(Command::new(program).args(arguments).env("APT_CONFIG", configuration))
    }

    fn update(&self) -> Output {
        self.run("apt-get", &["-o", "APT::Update::Error-Mode=any", "update"])
    }
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn apt_finds_downloads_and_verifies() {
    let directory = tempfile::tempdir().unwrap();
    let key = key();
    let debs: Vec<_> = versions().iter().map(|package| deb::write(package, directory.path()).unwrap()).collect();
    let repository = directory.path().join("apt");
    apt::write(&repository, &debs, &AptOptions::new("test", TIME), &key).unwrap();
    let client = Apt::new(directory.path(), &repository, &key);

    let updated = client.update();
    assert!(updated.status.success() && !text(&updated).contains("W:"), "{}", text(&updated));
    let policy = text(&client.run("apt-cache", &["policy", "demo"]));
    assert!(policy.contains("Candidate: 1.1") && policy.contains("1.0 500"), "{policy}");
    let simulated = text(&client.run("apt-get", &["--simulate", "install", "demo=1.0"]));
    assert!(simulated.contains("Inst demo (1.0 test:stable [all])"), "{simulated}");
    let uris = text(&client.run("apt-get", &["--print-uris", "download", "demo"]));
    assert!(uris.contains("pool/main/demo_1.1_all.deb") && uris.contains("SHA256:"), "{uris}");

    // A byte of an index changes: the checksum in the signed Release no longer fits.
    let index = repository.join("dists/stable/main").join(format!("binary-{}/Packages", Arch::host().unwrap().deb()));
    for name in [index.clone(), index.with_extension("gz")] {
        let mut content = fs::read(&name).unwrap();
        content[20] ^= 1;
        fs::write(&name, content).unwrap();
    }
    fs::remove_dir_all(client.root.join("state/lists")).unwrap();
    let tampered = client.update();
    assert!(!tampered.status.success(), "a changed index was accepted:\n{}", text(&tampered));

    // A byte of the signed list changes.
    apt::write(&repository, &debs, &AptOptions::new("test", TIME), &key).unwrap();
    assert!(client.update().status.success());
    let release = repository.join("dists/stable/InRelease");
    let forged = fs::read_to_string(&release).unwrap().replace("Origin: test", "Origin: evil");
    fs::write(&release, forged).unwrap();
    let tampered = client.update();
    assert!(!tampered.status.success() && text(&tampered).contains("signature"), "{}", text(&tampered));
}

#[test]
fn apt_refuses_other_keys_and_old_lists() {
    let directory = tempfile::tempdir().unwrap();
    let key = key();
    let debs = [deb::write(&versions()[0], directory.path()).unwrap()];
    let repository = directory.path().join("apt");
    apt::write(&repository, &debs, &AptOptions::new("test", TIME), &self::key()).unwrap();
    let client = Apt::new(directory.path(), &repository, &key);
    let other = client.update();
    assert!(!other.status.success() && text(&other).contains("NO_PUBKEY"), "{}", text(&other));

    let expired = AptOptions { valid_until: Some(TIME + DAY), ..AptOptions::new("test", TIME) };
    apt::write(&repository, &debs, &expired, &key).unwrap();
    let late = client.update();
    assert!(!late.status.success() && text(&late).contains("expired"), "{}", text(&late));

    let lifetime = Some(Duration::from_secs(3600));
    let short = SigningKey::generate("Short <short@example.org>", TIME, lifetime).unwrap();
    apt::write(&repository, &debs, &AptOptions::new("test", TIME), &short).unwrap();
    let client = Apt::new(directory.path(), &repository, &short);
    let outdated = client.update();
    assert!(!outdated.status.success() && text(&outdated).contains("EXPKEYSIG"), "{}", text(&outdated));
}

#[test]
fn a_second_write_replaces_the_first() {
    let directory = tempfile::tempdir().unwrap();
    let key = key();
    let [old, new] = versions().map(|package| deb::write(&package, directory.path()).unwrap());
    let repository = directory.path().join("apt");
    apt::write(&repository, &[old], &AptOptions::new("test", TIME), &key).unwrap();
    apt::write(&repository, std::slice::from_ref(&new), &AptOptions::new("test", TIME), &key).unwrap();
    let names: Vec<_> =
        fs::read_dir(repository.join("pool/main")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["demo_1.1_all.deb"]);
    // From the pool itself, in place.
    let pooled = repository.join("pool/main/demo_1.1_all.deb");
    apt::write(&repository, &[pooled], &AptOptions::new("test", TIME), &key).unwrap();
    let index = fs::read_to_string(repository.join("dists/stable/main/binary-amd64/Packages")).unwrap();
    assert_eq!(index.matches("Package: demo\n").count(), 1, "{index}");
}

#[test]
fn rpm_and_dnf_verify() {
    let directory = tempfile::tempdir().unwrap();
    let key = key();
    let rpms: Vec<_> = versions().iter().map(|package| rpm::write(package, directory.path(), None).unwrap()).collect();
    let repository = directory.path().join("dnf");
    dnf::write(&repository, &rpms, &key).unwrap();

    let database = directory.path().join("rpmdb");
    fs::create_dir(&database).unwrap();
    let rpm = |arguments: &[&str]| {
        let mut command = Command::new("rpm");
        attempt(command.arg("--dbpath").arg(&database).args(arguments).current_dir(&repository))
    };
    let package = "demo-1.1-1.noarch.rpm";
    let unknown = rpm(&["-Kv", package]);
    assert!(!unknown.status.success() && text(&unknown).contains("NOKEY"), "{}", text(&unknown));
    let imported = rpm(&["--import", "key.asc"]);
    assert!(imported.status.success(), "{}", text(&imported));
    let known = rpm(&["-Kv", package]);
    assert!(known.status.success() && text(&known).contains("Signature, key ID"), "{}", text(&known));

    let dnf = |arguments: &[&str]| {
        let path = |name: &str| directory.path().join(name).display().to_string();
        attempt(
            Command::new("dnf")
                .args(["--assumeyes", "--disablerepo=*", "--releasever=1"])
                .arg(format!("--installroot={}", path("installroot")))
                .arg(format!("--repofrompath=test,file://{}", repository.display()))
                .arg(format!("--setopt=test.gpgkey=file://{}/key.asc", repository.display()))
                .args(["--setopt=test.repo_gpgcheck=1", "--setopt=test.gpgcheck=1", "--enablerepo=test"])
                .arg(format!("--setopt=cachedir={}", path("dnf-cache")))
                .args(arguments)
                .env("HOME", directory.path()),
        )
    };
    let found = dnf(&["repoquery", "--quiet", "demo"]);
    assert_eq!(
        String::from_utf8_lossy(&found.stdout),
        "demo-0:1.0-1.noarch\ndemo-0:1.1-1.noarch\n",
        "{}",
        text(&found)
    );

    let metadata = repository.join("repodata/repomd.xml");
    let forged = fs::read_to_string(&metadata).unwrap().replace("<revision>", "<revision>1");
    fs::write(&metadata, forged).unwrap();
    fs::remove_dir_all(directory.path().join("dnf-cache")).unwrap();
    let tampered = dnf(&["repoquery", "demo"]);
    assert!(!text(&tampered).contains("demo-0:1.1"), "a changed index was accepted:\n{}", text(&tampered));
}

#[test]
fn repositories_are_reproducible() {
    let directory = tempfile::tempdir().unwrap();
    let key = key();
    let package = &versions()[0];
    let debs = [deb::write(package, directory.path()).unwrap()];
    let rpms = [rpm::write(package, directory.path(), None).unwrap()];
    let trees = ["a", "b"].map(|name| {
        let tree = directory.path().join(name);
        apt::write(&tree.join("apt"), &debs, &AptOptions::new("test", TIME), &key).unwrap();
        dnf::write(&tree.join("dnf"), &rpms, &key).unwrap();
        tree
    });
    run(Command::new("diff").arg("--recursive").args(trees));
}
