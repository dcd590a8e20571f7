//! dnf and rpm.

use super::command::{CommandError, Program};
use super::packages::{Installed, InstalledPackages, PackageError, PackageManager, Touched, Transaction, WayBack};
use crate::settings::{self, Manager};
use futures::FutureExt;
use futures::future::BoxFuture;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// rpm goes on when a script after installation fails, and dnf succeeds; a person would call that a failure.
const SCRIPT_FAILED: [&str; 2] = ["scriptlet failed", "Error in POST"];

/// dnf on this host.
#[derive(Debug)]
pub struct Dnf {
    lock_timeout_seconds: u32,
}

impl Dnf {
    /// dnf with the settings for packages.
    pub fn new(settings: &settings::Packages) -> Self {
        Self { lock_timeout_seconds: settings.lock_timeout_seconds }
    }

    /// dnf that never asks. It waits for its own lock without a limit, so that the limit is ours.
    fn dnf(&self) -> Program {
        let limit = Duration::from_secs(3600 + u64::from(self.lock_timeout_seconds));
        Program::new("dnf").quietly(["-q", "-y", "--setopt=keepcache=1"]).limit(limit)
    }

    /// Runs one verb over packages with their versions; without packages nothing.
    async fn change(&self, verb: &str, packages: &[(String, Option<String>)]) -> Result<(), PackageError> {
        if packages.is_empty() {
            return Ok(());
        }
        let words = packages.iter().map(|(name, version)| {
            version.as_ref().map_or_else(|| name.clone(), |version| format!("{name}-{version}"))
        });
        self.dnf().outlives_us().arg(verb).args(words).run_watching_for(&SCRIPT_FAILED).await?;
        Ok(())
    }
}

/// Lines of `NAME<TAB>EPOCH:VERSION-RELEASE`, as the query below prints them.
fn parse_query(text: &str, held: &BTreeSet<String>) -> InstalledPackages {
    text.lines()
        .filter_map(|line| line.split_once('\t'))
        // Keys that were imported are no packages that anybody could install again.
        .filter(|(name, _)| *name != "gpg-pubkey")
        .map(|(name, evr)| {
            let version = evr.strip_prefix("0:").unwrap_or(evr).to_owned();
            (name.to_owned(), Installed { version, held: held.contains(name), complete: true })
        })
        .collect()
}

/// Names in versionlock's list: lines of `NAME-EPOCH:VERSION-RELEASE.*`.
fn parse_locks(text: &str) -> BTreeSet<String> {
    let name = |line: &str| {
        let (before_epoch, _) = line.split_once(':')?;
        before_epoch.rsplit_once('-').map(|(name, _)| name.to_owned())
    };
    text.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with(['#', '!']))
        .filter_map(name)
        .collect()
}

/// Where the versionlock plugin keeps its list.
const LOCKS: &str = "/etc/dnf/plugins/versionlock.list";

impl PackageManager for Dnf {
    fn kind(&self) -> Manager {
        Manager::Dnf
    }

    fn installed(&self) -> BoxFuture<'_, Result<InstalledPackages, PackageError>> {
        async move {
            let held = parse_locks(&std::fs::read_to_string(LOCKS).unwrap_or_default());
            let query = "%{NAME}\\t%{EPOCHNUM}:%{VERSION}-%{RELEASE}\\n";
            let text = Program::new("rpm").args(["-qa", "--qf", query]).run().await?;
            Ok(parse_query(&text, &held))
        }
        .boxed()
    }

    fn refresh<'a>(&'a self, repositories: &'a BTreeSet<String>) -> BoxFuture<'a, Result<(), PackageError>> {
        async move {
            if repositories.is_empty() {
                return Ok(());
            }
            let only = repositories.iter().cloned().collect::<Vec<_>>().join(",");
            // A repository that can't be read is an error, whatever the host's configuration makes of it.
            let strict = repositories.iter().map(|name| format!("--setopt={name}.skip_if_unavailable=0"));
            let program = self.dnf().quietly(strict).args(["--disablerepo=*", &format!("--enablerepo={only}")]);
            program.args(["--refresh", "makecache"]).run().await?;
            Ok(())
        }
        .boxed()
    }

    fn examine<'a>(&'a self, _: &'a Transaction) -> BoxFuture<'a, Result<Option<BTreeSet<String>>, PackageError>> {
        // dnf has no simulation that is made for reading.
        std::future::ready(Ok(None)).boxed()
    }

    fn transact<'a>(&'a self, transaction: &'a Transaction) -> BoxFuture<'a, Result<(), PackageError>> {
        async move {
            // `install` upgrades a package whose newer version is named; going down has a verb of its own.
            self.change("install", &transaction.install).await?;
            self.change("downgrade", &transaction.downgrade).await?;
            if !transaction.remove.is_empty() {
                self.dnf().outlives_us().args(["remove", "--noautoremove"]).args(&transaction.remove).run().await?;
            }
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
            let now = self.installed().await?;
            let way = WayBack::find(&now, before, touched);
            let older = |(name, version): &(String, String)| {
                now.get(name).is_some_and(|is| rpm_version::rpm_evr_compare(version, &is.version).is_lt())
            };
            let (down, up): (Vec<_>, Vec<_>) = way.install.into_iter().partition(older);
            let versioned = |packages: Vec<(String, String)>| {
                packages.into_iter().map(|(name, version)| (name, Some(version))).collect::<Vec<_>>()
            };
            self.change("downgrade", &versioned(down)).await?;
            self.change("install", &versioned(up)).await?;
            if !way.remove.is_empty() {
                self.dnf().outlives_us().args(["remove", "--noautoremove"]).args(&way.remove).run().await?;
            }
            Ok(())
        }
        .boxed()
    }

    fn hold<'a>(&'a self, package: &'a str, hold: bool) -> BoxFuture<'a, Result<(), PackageError>> {
        async move {
            let verb = if hold { "add" } else { "delete" };
            match self.dnf().args(["versionlock", verb, package]).run().await {
                Ok(_) => Ok(()),
                Err(CommandError::Failed { message, .. }) if message.contains("No such command") => {
                    Err(PackageError::Unsupported(format!(
                        "holding {package} needs dnf's versionlock plugin: install python3-dnf-plugin-versionlock, or remove `hold`"
                    )))
                }
                Err(error) => Err(error.into()),
            }
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_and_locks() {
        let locks = parse_locks("# added\ncontainerd.io-0:1.7.2-1.*\n!excluded-0:1-1.*\n");
        assert_eq!(locks.iter().collect::<Vec<_>>(), ["containerd.io"]);
        let installed = parse_query("containerd.io\t0:1.7.2-1\nbind\t32:9.1-2\n", &locks);
        assert_eq!(installed["containerd.io"], Installed { version: "1.7.2-1".into(), held: true, complete: true });
        assert_eq!(installed["bind"].version, "32:9.1-2");
    }
}
