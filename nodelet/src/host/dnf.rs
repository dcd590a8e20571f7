//! dnf and rpm.

use super::command::{CommandError, Program};
use super::files::Stamp;
use super::locks::{self, Lock};
use super::overlay::{self, Overlay, Places};
use super::packages::{
    Installed, InstalledPackages, Owed, PackageError, PackageManager, Request, Staged, Touched, Transaction, WayBack,
    Withhold,
};
use super::{space, withhold};
use crate::plan;
use crate::progress::{Progress, Tell};
use crate::root::Root;
use crate::settings::{self, Manager};
use futures::FutureExt;
use futures::future::BoxFuture;
use nodelet_api::text::PackageVersion;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

const PLACES: Places = Places { definitions: "/etc/yum.repos.d", keys: "/etc/pki/rpm-gpg" };

/// rpm goes on when a script after installation fails, and dnf succeeds; a person would call that a failure.
const SCRIPT_FAILED: [&str; 2] = ["scriptlet failed", "Error in POST"];

/// dnf on this host.
#[derive(Debug)]
pub struct Dnf {
    root: Root,
    lock_timeout_seconds: u32,
    may_remove: BTreeSet<String>,
    /// What the database said, as long as it is the same.
    known: Mutex<Option<(Vec<Stamp>, Arc<InstalledPackages>)>>,
}

impl Dnf {
    /// dnf with the settings for packages.
    pub fn new(root: &Root, settings: &settings::Packages) -> Self {
        Self {
            root: root.clone(),
            lock_timeout_seconds: settings.lock_timeout_seconds,
            may_remove: settings.may_remove.iter().map(ToString::to_string).collect(),
            known: Mutex::default(),
        }
    }

    /// dnf that never asks.
    fn dnf(&self) -> Program {
        let limit = Duration::from_secs(3600 + u64::from(self.lock_timeout_seconds));
        Program::new("dnf").quietly(["-y", "--setopt=keepcache=1"]).limit(limit)
    }

    /// Brings packages up or down to their versions, in one transaction; without packages nothing.
    async fn install(&self, packages: &[(String, Option<String>)], tell: Tell<'_>) -> Result<(), PackageError> {
        if packages.is_empty() {
            return Ok(());
        }
        let program = self.dnf().outlives_us().arg("install").args(words(packages));
        program.run_telling(tell, progress, &SCRIPT_FAILED).await?;
        Ok(())
    }

    async fn remove(&self, names: &[String], tell: Tell<'_>) -> Result<(), PackageError> {
        if !names.is_empty() {
            let program = self.dnf().outlives_us().args(["remove", "--noautoremove"]).args(names);
            program.run_telling(tell, progress, &[]).await?;
        }
        Ok(())
    }

    /// Resolves and downloads what an installation would change.
    async fn download(
        &self,
        packages: &[(String, Option<String>)],
        overlay: &Overlay,
        tell: Tell<'_>,
    ) -> Result<Staged, PackageError> {
        if packages.is_empty() {
            return Ok(Staged { touches: Some(BTreeSet::new()), ..Staged::default() });
        }
        let mut program = self.dnf().args(["install", "--downloadonly"]).args(words(packages));
        if let Some(all) = &overlay.all {
            program = program.quietly([format!("--setopt=reposdir={}", all.display())]);
        }
        // Only nodelet changes what it holds.
        let program = program.quietly(["--disableplugin=versionlock"]);
        match program.run_telling(tell, progress, &[]).await {
            Ok(printed) => Ok(read_resolution(&printed)),
            // Its own words for a full disk name neither the disk nor that it is full.
            Err(failed) if failed.to_string().contains("Failed writing received data") => {
                let directory = "/var/cache/dnf";
                let free = space::bytes(space::free(&self.root.join(directory)).unwrap_or_default());
                Err(PackageError::Full { failed: Box::new(failed), directory, free })
            }
            Err(failed) => Err(failed.into()),
        }
    }

    /// Finishes what a power cut interrupted: one version of a package came, and the other is not yet gone.
    async fn repair(&self, wanted: &Versions<'_>, tell: Tell<'_>) -> Result<(), PackageError> {
        let text = Program::new("rpm").args(["-qa", "--qf", QUERY]).run().await?;
        let surplus = surplus(&text, wanted);
        if !surplus.is_empty() {
            tracing::warn!(packages = surplus.join(", "), "dnf was interrupted; removing the other of two versions");
            tell(Progress::Note("finish what dnf was doing when it was interrupted"));
            Program::new("rpm").outlives_us().args(["-e", "--nodeps"]).args(surplus).run().await?;
        }
        Ok(())
    }

    /// Refuses a removal that would take other packages with it.
    async fn examine_removal(&self, transaction: &Transaction) -> Result<(), PackageError> {
        if transaction.remove.is_empty() {
            return Ok(());
        }
        let tested = Program::new("rpm").args(["-e", "--test"]).args(&transaction.remove).run().await;
        let Err(CommandError::Failed { message, .. }) = &tested else { return Ok(tested.map(drop)?) };
        let needed = message.split("is needed by (installed) ").skip(1);
        let removes = needed.filter_map(|rest| rest.split([';', ' ', '\n']).next()).map(name_of).collect();
        let staged = Staged { removes, ..Staged::default() };
        staged.refuse_unasked(transaction, &self.may_remove)
    }

    /// A package that nodelet holds is let go for nodelet's own change of it; the next plan holds its new version.
    async fn unlock(&self, names: impl Iterator<Item = &String>) -> Result<(), PackageError> {
        let held = self.locks();
        let names: Vec<&String> = names.filter(|name| held.contains(*name)).collect();
        if !names.is_empty() {
            self.dnf().quietly(["-q"]).args(["versionlock", "delete"]).args(names).run().await?;
        }
        Ok(())
    }

    fn locks(&self) -> BTreeSet<String> {
        parse_locks(&std::fs::read_to_string(self.root.join(LOCKS)).unwrap_or_default())
    }

    async fn wait_for_lock(&self, tell: Tell<'_>) -> Result<(), PackageError> {
        let processes =
            ["/var/cache/dnf/metadata_lock.pid", "/var/cache/dnf/download_lock.pid", "/var/lib/dnf/rpmdb_lock.pid"];
        let mut locks = processes.map(|path| Lock::Process(self.root.join(path))).to_vec();
        locks.push(Lock::Record(self.root.join("/var/lib/rpm/.rpm.lock")));
        Ok(locks::wait(&locks, Duration::from_secs(self.lock_timeout_seconds.into()), tell).await?)
    }

    fn stamps(&self) -> Vec<Stamp> {
        let files = ["/var/lib/rpm/rpmdb.sqlite", "/var/lib/rpm/rpmdb.sqlite-wal", "/var/lib/rpm/Packages", LOCKS];
        files.iter().filter_map(|path| std::fs::metadata(self.root.join(path)).ok()).map(|at| Stamp::of(&at)).collect()
    }

    fn withhold(&self, withheld: &Withhold) -> Result<(), PackageError> {
        let at = |source| PackageError::Database { path: "/run/systemd/system".into(), source };
        withhold::begin_condition(&self.root, &withheld.stopped).map_err(at)
    }

    fn owed(&self) -> Result<Owed, PackageError> {
        let at = |source| PackageError::Database { path: "/run/systemd/system".into(), source };
        withhold::end(&self.root).map_err(at)
    }
}

/// `NAME-VERSION`, as dnf takes it.
fn words(packages: &[(String, Option<String>)]) -> Vec<String> {
    let word = |(name, version): &(String, Option<String>)| {
        version.as_ref().map_or_else(|| name.clone(), |version| format!("{name}-{version}"))
    };
    packages.iter().map(word).collect()
}

/// The name in `NAME-VERSION-RELEASE.ARCH`.
fn name_of(nevra: &str) -> String {
    let mut parts = nevra.rsplitn(3, '-');
    parts.nth(2).unwrap_or(nevra).to_owned()
}

/// How far dnf is, from a line such as `  Installing       : clock-1.0-1.x86_64       1/2`.
fn progress(line: &str) -> Option<(u8, &str)> {
    let (what, count) = line.trim().rsplit_once(' ')?;
    let (done, total) = count.split_once('/')?;
    let (done, total): (u32, u32) = (done.parse().ok()?, total.parse().ok()?);
    let percent = u8::try_from((100 * done).checked_div(total)?.min(100)).ok()?;
    Some((percent, what.trim()))
}

/// What dnf is going to do, from its table.
fn read_resolution(printed: &str) -> Staged {
    let mut staged = Staged { touches: Some(BTreeSet::new()), ..Staged::default() };
    let mut heading = "";
    for line in printed.lines() {
        if let Some(size) = line.strip_prefix("Total download size: ") {
            staged.download = space::parse_bytes(size).unwrap_or_default();
        } else if let Some(size) = line.strip_prefix("Installed size: ") {
            staged.space = space::parse_bytes(size).unwrap_or_default();
        } else if line.starts_with("Transaction Summary") {
            heading = "";
        } else if line.ends_with(':') && !line.starts_with(' ') {
            heading = line;
        } else if line.starts_with(' ') && !heading.is_empty() {
            let mut words = line.split_whitespace();
            let (Some(name), Some(_), Some(version)) = (words.next(), words.next(), words.next()) else { continue };
            staged.touches.get_or_insert_default().insert(name.to_owned());
            if heading.starts_with("Removing") {
                staged.removes.insert(name.to_owned());
            } else {
                staged.versions.insert(name.to_owned(), version.to_owned());
            }
        }
    }
    staged
}

/// Lines of `NAME<TAB>EPOCH:VERSION-RELEASE`, as the query below prints them.
fn parse_query(text: &str, held: &BTreeSet<String>) -> InstalledPackages {
    text.lines()
        .filter_map(|line| line.split_once('\t'))
        // Keys that were imported are no packages that anybody could install again.
        .filter(|(name, _)| *name != "gpg-pubkey")
        .map(|(name, evr)| (name.to_owned(), evr.strip_prefix("0:").unwrap_or(evr).to_owned()))
        .fold(InstalledPackages::new(), |mut packages, (name, version)| {
            if let Some(other) = packages.get_mut(&name) {
                // Two versions at once: a transaction was cut off before the older one was removed. (Kernels are meant
                // to be so; nobody puts a version of theirs into a state.)
                other.complete = false;
                if rpm_version::rpm_evr_compare(&version, &other.version).is_gt() {
                    other.version = version;
                }
            } else {
                let held = held.contains(&name);
                packages.insert(name, Installed { version, held, complete: true, automatic: false });
            }
            packages
        })
}

/// Versions that are asked for, by the names of their packages.
type Versions<'a> = BTreeMap<&'a str, Option<&'a str>>;

/// Whether an installed version is the one that is asked for, if one is.
fn is_wanted(wanted: Option<&str>, installed: &str) -> bool {
    let wanted = wanted.and_then(|wanted| PackageVersion::try_from(wanted.to_owned()).ok());
    wanted.is_some_and(|wanted| plan::is_version(&wanted, installed, Manager::Dnf))
}

/// What is too much of packages that are there in several versions, as `rpm -e` takes it: all but the version that is
/// asked for, or else the newest.
fn surplus(text: &str, wanted: &Versions<'_>) -> Vec<String> {
    let mut versions = BTreeMap::<&str, Vec<&str>>::new();
    for (name, evr) in text.lines().filter_map(|line| line.split_once('\t')) {
        versions.entry(name).or_default().push(evr.strip_prefix("0:").unwrap_or(evr));
    }
    let mut surplus = Vec::new();
    for (name, wanted) in wanted {
        let Some(mut there) = versions.remove(name) else { continue };
        there.sort_by(|a, b| rpm_version::rpm_evr_compare(a, b));
        let kept = there.iter().rposition(|version| is_wanted(*wanted, version)).unwrap_or(there.len() - 1);
        there.remove(kept);
        surplus
            .extend(there.iter().map(|evr| format!("{name}-{}", evr.split_once(':').map_or(*evr, |(_, rest)| rest))));
    }
    surplus
}

/// What rpm tells of each installed package.
const QUERY: &str = "%{NAME}\\t%{EPOCHNUM}:%{VERSION}-%{RELEASE}\\n";

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

    fn installed(&self) -> BoxFuture<'_, Result<Arc<InstalledPackages>, PackageError>> {
        async move {
            let stamps = self.stamps();
            {
                let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some((last, packages)) = &*known
                    && *last == stamps
                {
                    return Ok(Arc::clone(packages));
                }
            }
            let text = Program::new("rpm").args(["-qa", "--qf", QUERY]).run().await?;
            let packages = Arc::new(parse_query(&text, &self.locks()));
            *self.known.lock().unwrap_or_else(PoisonError::into_inner) = Some((stamps, Arc::clone(&packages)));
            Ok(packages)
        }
        .boxed()
    }

    fn stage<'a>(&'a self, request: &'a Request<'a>, tell: Tell<'a>) -> BoxFuture<'a, Result<Staged, PackageError>> {
        async move {
            let at = |source| PackageError::Database { path: "/var/cache/nodelet/stage".into(), source };
            let overlay = overlay::build(&self.root, PLACES, request).map_err(at)?;
            self.wait_for_lock(tell).await?;
            if !request.refresh.is_empty() {
                let only = request.refresh.iter().cloned().collect::<Vec<_>>().join(",");
                // A repository that can't be read is an error, whatever the host's configuration makes of it.
                let strict = request.refresh.iter().map(|name| format!("--setopt={name}.skip_if_unavailable=0"));
                let program = self.dnf().quietly(["-q"]).quietly(strict);
                let program = program.quietly([format!("--setopt=reposdir={}", overlay.refreshed.display())]);
                let program = program.args(["--disablerepo=*", &format!("--enablerepo={only}")]);
                let repositories = request.refresh.clone();
                let refreshed = program.args(["--refresh", "makecache"]).run().await;
                refreshed.map_err(|source| PackageError::Refresh { repositories, source })?;
            }
            let Some(transaction) = &request.transaction else { return Ok(Staged::default()) };
            let versions = transaction.versions();
            let wanted = versions.iter().map(|(name, version)| (name.as_str(), version.as_deref()));
            self.repair(&wanted.chain(transaction.remove.iter().map(|name| (name.as_str(), None))).collect(), tell)
                .await?;
            self.examine_removal(transaction).await?;
            let mut staged = self.download(&versions, &overlay, tell).await?;
            staged.touches.get_or_insert_default().extend(transaction.names().cloned());
            staged.refuse_unasked(transaction, &self.may_remove)?;
            space::check(&self.root.join("/usr"), staged.space, "unpacking the packages")?;
            space::check(&self.root.join("/var/lib/rpm"), 0, "rpm's database")?;
            Ok(staged)
        }
        .boxed()
    }

    fn transact<'a>(&'a self, wanted: &'a Transaction, tell: Tell<'a>) -> BoxFuture<'a, Result<Owed, PackageError>> {
        async move {
            self.wait_for_lock(tell).await?;
            self.unlock(wanted.names()).await?;
            self.withhold(&wanted.withhold)?;
            let result = async {
                self.install(&wanted.versions(), tell).await?;
                self.remove(&wanted.remove, tell).await
            };
            let result = result.await;
            let owed = self.owed()?;
            result.map(|()| owed)
        }
        .boxed()
    }

    fn restore<'a>(
        &'a self,
        before: &'a BTreeMap<String, String>,
        touched: Touched<'a>,
        _: &'a Withhold,
        tell: Tell<'a>,
    ) -> BoxFuture<'a, Result<Owed, PackageError>> {
        async move {
            self.wait_for_lock(tell).await?;
            let ours = before.iter().filter(|(name, _)| touched.is_none_or(|touched| touched.contains(*name)));
            self.repair(&ours.map(|(name, version)| (name.as_str(), Some(version.as_str()))).collect(), tell).await?;
            let now = self.installed().await?;
            let way = WayBack::find(&now, before, touched);
            self.unlock(way.install.iter().map(|(name, _)| name).chain(&way.remove)).await?;
            let versions: Vec<_> = way.install.into_iter().map(|(name, version)| (name, Some(version))).collect();
            self.install(&versions, tell).await?;
            self.remove(&way.remove, tell).await?;
            Ok(Owed::new())
        }
        .boxed()
    }

    /// dnf keeps what it downloads in its own cache, and an administrator may clean that.
    fn tidy(&self, _: SystemTime) {}

    fn wait<'a>(&'a self, tell: Tell<'a>) -> BoxFuture<'a, Result<(), PackageError>> {
        self.wait_for_lock(tell).boxed()
    }

    /// What dnf keeps a package for is in its history alone, which no check reads; what `dnf install` names is kept.
    fn keep<'a>(&'a self, _: &'a str, _: bool) -> BoxFuture<'a, Result<(), PackageError>> {
        std::future::ready(Ok(())).boxed()
    }

    fn hold<'a>(&'a self, package: &'a str, hold: bool) -> BoxFuture<'a, Result<(), PackageError>> {
        async move {
            let verb = if hold { "add" } else { "delete" };
            match self.dnf().quietly(["-q"]).args(["versionlock", verb, package]).run().await {
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
    fn a_resolution_is_read() {
        let printed = "Dependencies resolved.\n\
            ================\n Package   Architecture   Version   Repository   Size\n================\n\
            Upgrading:\n clock     x86_64   2.0-1     dummies   6.1 k\n\
            Installing dependencies:\n dep       noarch   1:1.0-1   dummies   6.1 k\n\
            Removing dependent packages:\n old       x86_64   1.0-1     @dummies  0 \n\
            \nTransaction Summary\n================\nUpgrade  1 Package\n\n\
            Total download size: 12 k\nInstalled size: 1.5 M\nDownloading Packages:\n";
        let staged = read_resolution(printed);
        assert_eq!(staged.touches, Some(["clock", "dep", "old"].map(str::to_owned).into()));
        assert_eq!(staged.versions["dep"], "1:1.0-1");
        assert_eq!(staged.removes, BTreeSet::from(["old".to_owned()]));
        assert_eq!((staged.download, staged.space), (12_000, 1_500_000));
    }

    #[test]
    fn small_things_are_read() {
        assert_eq!(name_of("my-clock-1.0-1.x86_64"), "my-clock");
        let line = "  Installing       : clock-1.0-1.x86_64                 1/2 ";
        assert_eq!(progress(line), Some((50, "Installing       : clock-1.0-1.x86_64")));
        assert_eq!(progress("Total   1.2 MB/s | 12 kB  00:00"), None);
    }

    #[test]
    fn queries_and_locks() {
        let locks = parse_locks("# added\ncontainerd.io-0:1.7.2-1.*\n!excluded-0:1-1.*\n");
        assert_eq!(locks.iter().collect::<Vec<_>>(), ["containerd.io"]);
        let installed = parse_query("containerd.io\t0:1.7.2-1\nbind\t32:9.1-2\n", &locks);
        assert_eq!(
            installed["containerd.io"],
            Installed { version: "1.7.2-1".into(), held: true, complete: true, automatic: false }
        );
        assert_eq!(installed["bind"].version, "32:9.1-2");
        let twice = "a\t0:1.0-1\na\t0:2.0-1\nb\t0:1-1\n";
        let installed = parse_query(twice, &locks);
        assert!(!installed["a"].complete && installed["a"].version == "2.0-1" && installed["b"].complete);
        assert_eq!(surplus(twice, &[("a", None), ("b", None)].into()), ["a-1.0-1"]);
        assert_eq!(surplus(twice, &[("a", Some("2.0")), ("c", None)].into()), ["a-1.0-1"]);
        assert_eq!(surplus(twice, &[("a", Some("1.0"))].into()), ["a-2.0-1"], "a downgrade was cut off");
    }
}
