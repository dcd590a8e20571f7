//! apt and dpkg.

use super::command::Program;
use super::dpkg;
use super::packages::{InstalledPackages, PackageError, PackageManager, Transaction};
use crate::root::Root;
use crate::settings::{self, Manager};
use futures::FutureExt;
use futures::future::BoxFuture;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// apt on this host.
#[derive(Debug)]
pub struct Apt {
    status_file: PathBuf,
    lock_timeout_seconds: u32,
    may_remove: BTreeSet<String>,
}

impl Apt {
    /// apt with the settings for packages.
    pub fn new(root: &Root, settings: &settings::Packages) -> Self {
        Self {
            status_file: root.join("/var/lib/dpkg/status"),
            lock_timeout_seconds: settings.lock_timeout_seconds,
            may_remove: settings.may_remove.iter().map(ToString::to_string).collect(),
        }
    }

    /// apt-get that never asks, waits for the lock, and keeps edited configuration files.
    fn apt_get(&self) -> Program {
        Program::new("apt-get")
            .env("DEBIAN_FRONTEND", "noninteractive")
            .env("APT_LISTCHANGES_FRONTEND", "none")
            .env("NEEDRESTART_SUSPEND", "1")
            .arg("-q")
            .arg("-y")
            .args(["-o", &format!("DPkg::Lock::Timeout={}", self.lock_timeout_seconds)])
            .args(["-o", "Dpkg::Options::=--force-confdef"])
            .args(["-o", "Dpkg::Options::=--force-confold"])
            .args(["-o", "APT::Get::AutomaticRemove=false"])
    }

    fn install(&self, transaction: &Transaction) -> Program {
        let mut program = self.apt_get().args(["--no-install-recommends", "--allow-change-held-packages"]);
        if !transaction.downgrade.is_empty() {
            program = program.arg("--allow-downgrades");
        }
        program
    }

    async fn refuse_surprises(&self, transaction: &Transaction) -> Result<(), PackageError> {
        let simulated =
            self.install(transaction).arg("--simulate").arg("install").args(words(transaction)).run().await?;
        let removed: Vec<String> = simulated
            .lines()
            .filter_map(|line| line.strip_prefix("Remv ")?.split(' ').next())
            .filter(|name| !transaction.remove.iter().any(|asked| asked == name) && !self.may_remove.contains(*name))
            .map(str::to_owned)
            .collect();
        if removed.is_empty() {
            return Ok(());
        }
        let asked = transaction.install.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ");
        Err(PackageError::WouldRemove { asked, removed })
    }
}

/// The transaction as apt-get's `install` takes it: `name=version`, and `name-` for a removal.
fn words(transaction: &Transaction) -> Vec<String> {
    let install = transaction.install.iter().chain(&transaction.downgrade).map(|(name, version)| match version {
        Some(version) => format!("{name}={version}"),
        None => name.clone(),
    });
    install.chain(transaction.remove.iter().map(|name| format!("{name}-"))).collect()
}

impl PackageManager for Apt {
    fn kind(&self) -> Manager {
        Manager::Apt
    }

    fn installed(&self) -> BoxFuture<'_, Result<InstalledPackages, PackageError>> {
        let read = std::fs::read_to_string(&self.status_file).map(|text| dpkg::parse_status(&text));
        let result =
            read.map_err(|source| PackageError::Database { path: self.status_file.display().to_string(), source });
        std::future::ready(result).boxed()
    }

    fn refresh<'a>(&'a self, repositories: &'a BTreeSet<String>) -> BoxFuture<'a, Result<(), PackageError>> {
        async move {
            for name in repositories {
                self.apt_get()
                    .arg("update")
                    .args(["-o", &format!("Dir::Etc::SourceList=/etc/apt/sources.list.d/{name}.sources")])
                    .args(["-o", "Dir::Etc::SourceParts=/dev/null"])
                    .args(["-o", "APT::Get::List-Cleanup=0"])
                    // A repository that can't be read is an error, not a warning.
                    .args(["-o", "APT::Update::Error-Mode=any"])
                    .run()
                    .await?;
            }
            Ok(())
        }
        .boxed()
    }

    fn transact<'a>(&'a self, transaction: &'a Transaction) -> BoxFuture<'a, Result<(), PackageError>> {
        async move {
            self.refuse_surprises(transaction).await?;
            self.install(transaction).outlives_us().arg("install").args(words(transaction)).run().await?;
            Ok(())
        }
        .boxed()
    }

    fn hold<'a>(&'a self, package: &'a str, hold: bool) -> BoxFuture<'a, Result<(), PackageError>> {
        async move {
            Program::new("apt-mark").arg(if hold { "hold" } else { "unhold" }).arg(package).run().await?;
            Ok(())
        }
        .boxed()
    }
}
