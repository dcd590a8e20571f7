//! apt and dpkg.

use super::command::Program;
use super::dpkg;
use super::packages::{InstalledPackages, PackageError, PackageManager, Touched, Transaction, WayBack};
use crate::root::Root;
use crate::settings::{self, Manager, Prune};
use futures::FutureExt;
use futures::future::BoxFuture;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// Packages that were downloaded; they are kept, so that a change can be undone when its repository is gone.
const ARCHIVES: &str = "/var/cache/nodelet/archives";

/// apt on this host.
#[derive(Debug)]
pub struct Apt {
    status_file: PathBuf,
    updates: PathBuf,
    archives: PathBuf,
    purge: bool,
    lock_timeout_seconds: u32,
    may_remove: BTreeSet<String>,
}

impl Apt {
    /// apt with the settings for packages.
    pub fn new(root: &Root, settings: &settings::Packages) -> Self {
        Self {
            status_file: root.join("/var/lib/dpkg/status"),
            updates: root.join("/var/lib/dpkg/updates"),
            archives: root.join(ARCHIVES),
            purge: settings.prune == Prune::Purge,
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
            .quietly(["-q", "-y"])
            .quietly(["-o", &format!("DPkg::Lock::Timeout={}", self.lock_timeout_seconds)])
            .quietly(["-o", "Dpkg::Options::=--force-confdef"])
            .quietly(["-o", "Dpkg::Options::=--force-confold"])
            .quietly(["-o", "APT::Get::AutomaticRemove=false"])
            .quietly(["-o", &format!("Dir::Cache::archives={}", self.archives.display())])
    }

    fn install(&self, transaction: &Transaction) -> Program {
        let mut program = self.apt_get().quietly(["--no-install-recommends", "--allow-change-held-packages"]);
        if self.purge {
            program = program.arg("--purge");
        }
        if !transaction.downgrade.is_empty() {
            program = program.arg("--allow-downgrades");
        }
        program
    }

    fn status(&self) -> Result<String, PackageError> {
        std::fs::read_to_string(&self.status_file)
            .map_err(|source| PackageError::Database { path: self.status_file.display().to_string(), source })
    }

    /// apt makes this only for its own default.
    fn make_archives(&self) -> Result<(), PackageError> {
        let partial = self.archives.join("partial");
        std::fs::create_dir_all(&partial)
            .map_err(|source| PackageError::Database { path: partial.display().to_string(), source })
    }

    /// Finishes what a crash or a power cut interrupted: apt refuses to work before that is tried. What can't be
    /// finished (a package that was only half unpacked) is replaced by the transaction that follows.
    async fn repair(&self) -> Result<(), PackageError> {
        let interrupted = std::fs::read_dir(&self.updates).is_ok_and(|mut entries| entries.next().is_some());
        if interrupted || dpkg::has_unfinished(&self.status()?) {
            tracing::warn!("dpkg was interrupted; finishing what it was doing");
            let program = Program::new("dpkg").env("DEBIAN_FRONTEND", "noninteractive").outlives_us();
            if let Err(error) = program.args(["--configure", "-a", "--force-confdef", "--force-confold"]).run().await {
                tracing::warn!(%error, "not all of it could be finished");
            }
        }
        Ok(())
    }

    /// The kept file of a package, or how apt names it in a repository.
    fn find_version(&self, name: &str, version: &str) -> String {
        let prefix = format!("{name}_{}_", version.replace(':', "%3a"));
        let kept = std::fs::read_dir(&self.archives).into_iter().flatten().flatten().find(|entry| {
            let file = entry.file_name();
            let file = file.to_string_lossy();
            file.starts_with(&prefix) && file.ends_with(".deb")
        });
        kept.map_or_else(|| format!("{name}={version}"), |entry| entry.path().display().to_string())
    }

    async fn simulate(&self, transaction: &Transaction) -> Result<BTreeSet<String>, PackageError> {
        let simulated =
            self.install(transaction).arg("--simulate").arg("install").args(words(transaction)).run().await?;
        let named = |marks: &[&str]| -> BTreeSet<String> {
            let name = |line: &str| {
                let rest = marks.iter().find_map(|mark| line.strip_prefix(mark))?;
                rest.split([' ', ':']).next().map(str::to_owned)
            };
            simulated.lines().filter_map(name).collect()
        };
        let asked = |name: &String| transaction.remove.contains(name) || self.may_remove.contains(name);
        let removed: Vec<String> = named(&["Remv ", "Purg "]).into_iter().filter(|name| !asked(name)).collect();
        if removed.is_empty() {
            return Ok(named(&["Inst ", "Conf ", "Remv ", "Purg "]));
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
        std::future::ready(self.status().map(|text| dpkg::parse_status(&text))).boxed()
    }

    fn refresh<'a>(&'a self, repositories: &'a BTreeSet<String>) -> BoxFuture<'a, Result<(), PackageError>> {
        async move {
            for name in repositories {
                self.apt_get()
                    .arg("update")
                    .quietly(["-o", &format!("Dir::Etc::SourceList=/etc/apt/sources.list.d/{name}.sources")])
                    .quietly(["-o", "Dir::Etc::SourceParts=/dev/null"])
                    .quietly(["-o", "APT::Get::List-Cleanup=0"])
                    // A repository that can't be read is an error, not a warning.
                    .quietly(["-o", "APT::Update::Error-Mode=any"])
                    .run()
                    .await?;
            }
            Ok(())
        }
        .boxed()
    }

    fn examine<'a>(
        &'a self,
        transaction: &'a Transaction,
    ) -> BoxFuture<'a, Result<Option<BTreeSet<String>>, PackageError>> {
        async move {
            self.make_archives()?;
            self.repair().await?;
            self.simulate(transaction).await.map(Some)
        }
        .boxed()
    }

    fn transact<'a>(&'a self, transaction: &'a Transaction) -> BoxFuture<'a, Result<(), PackageError>> {
        async move {
            self.install(transaction).outlives_us().arg("install").args(words(transaction)).run().await?;
            Ok(())
        }
        .boxed()
    }

    fn restore<'a>(
        &'a self,
        before: &'a BTreeMap<String, String>,
        touched: Touched<'a>,
    ) -> BoxFuture<'a, Result<(), PackageError>> {
        async move {
            self.make_archives()?;
            self.repair().await?;
            let way = WayBack::find(&dpkg::parse_status(&self.status()?), before, touched);
            if way.is_empty() {
                return Ok(());
            }
            let install = way.install.iter().map(|(name, version)| self.find_version(name, version));
            let words = install.chain(way.remove.iter().map(|name| format!("{name}-")));
            let program =
                self.apt_get().outlives_us().quietly(["--no-install-recommends", "--allow-change-held-packages"]);
            program.args(["--allow-downgrades", "--purge", "install"]).args(words).run().await?;
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
