//! apt and dpkg.

use super::command::Program;
use super::dpkg;
use super::files::Stamp;
use super::locks::{self, Lock};
use super::overlay::{self, Overlay, Places};
use super::packages::{
    InstalledPackages, Owed, PackageError, PackageManager, Request, Staged, Touched, Transaction, WayBack, Withhold,
};
use super::{space, withhold};
use crate::progress::{Progress, Tell};
use crate::root::Root;
use crate::settings::{self, Conffiles, Manager, Prune};
use futures::FutureExt;
use futures::future::BoxFuture;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// Packages that were downloaded; they are kept, so that a change can be undone when its repository is gone.
const ARCHIVES: &str = "/var/cache/nodelet/archives";
const PLACES: Places = Places { definitions: "/etc/apt/sources.list.d", keys: "/etc/apt/keyrings" };

/// Of the status file and of the extended states.
type Stamps = [Option<Stamp>; 2];

/// apt on this host.
#[derive(Debug)]
pub struct Apt {
    root: Root,
    status_file: PathBuf,
    extended_states: PathBuf,
    updates: PathBuf,
    archives: PathBuf,
    purge: bool,
    replace_conffiles: bool,
    lock_timeout_seconds: u32,
    may_remove: BTreeSet<String>,
    /// What the status file and the extended states said, as long as they are the same.
    known: Mutex<Option<(Stamps, Arc<InstalledPackages>)>>,
}

impl Apt {
    /// apt with the settings for packages.
    pub fn new(root: &Root, settings: &settings::Packages) -> Self {
        Self {
            root: root.clone(),
            status_file: root.join("/var/lib/dpkg/status"),
            extended_states: root.join("/var/lib/apt/extended_states"),
            updates: root.join("/var/lib/dpkg/updates"),
            archives: root.join(ARCHIVES),
            purge: settings.prune == Prune::Purge,
            replace_conffiles: settings.conffiles == Conffiles::Replace,
            lock_timeout_seconds: settings.lock_timeout_seconds,
            may_remove: settings.may_remove.iter().map(ToString::to_string).collect(),
            known: Mutex::default(),
        }
    }

    /// What dpkg does with configuration files that were edited and that a new version ships too.
    fn conffiles(&self) -> [&'static str; 2] {
        ["--force-confdef", if self.replace_conffiles { "--force-confnew" } else { "--force-confold" }]
    }

    /// apt-get that never asks, and says how far it is.
    fn apt_get(&self) -> Program {
        Program::new("apt-get")
            .env("DEBIAN_FRONTEND", "noninteractive")
            .env("APT_LISTCHANGES_FRONTEND", "none")
            .env("NEEDRESTART_SUSPEND", "1")
            .quietly(["-q", "-y"])
            .quietly(["-o", &format!("DPkg::Lock::Timeout={}", self.lock_timeout_seconds)])
            .quietly(self.conffiles().map(|option| format!("-oDpkg::Options::={option}")))
            .quietly(["-o", "APT::Get::AutomaticRemove=false", "-o", "APT::Status-Fd=1"])
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
        std::fs::read_to_string(&self.status_file).map_err(database(&self.status_file))
    }

    /// apt makes this only for its own default.
    fn make_archives(&self) -> Result<(), PackageError> {
        let partial = self.archives.join("partial");
        std::fs::create_dir_all(&partial).map_err(database(&partial))
    }

    /// Finishes what a crash or a power cut interrupted: apt refuses to work before that is tried. What can't be
    /// finished (a package that was only half unpacked) is replaced by the transaction that follows.
    async fn repair(&self, withheld: &Withhold, tell: Tell<'_>) -> Result<(), PackageError> {
        let interrupted = std::fs::read_dir(&self.updates).is_ok_and(|mut entries| entries.next().is_some());
        if interrupted || dpkg::has_unfinished(&self.status()?) {
            self.wait_for_lock(tell).await?;
            tracing::warn!("dpkg was interrupted; finishing what it was doing");
            tell(Progress::Note("finish what dpkg was doing when it was interrupted"));
            self.withhold(withheld)?;
            let program = Program::new("dpkg").env("DEBIAN_FRONTEND", "noninteractive").outlives_us();
            if let Err(error) = program.args(["--configure", "-a"]).quietly(self.conffiles()).run().await {
                tracing::warn!(%error, "not all of it could be finished");
            }
            // What was asked for meanwhile stays written down until the transaction that follows takes it up.
            self.owed()?;
        }
        Ok(())
    }

    fn withhold(&self, withheld: &Withhold) -> Result<(), PackageError> {
        withhold::begin_policy(&self.root, &withheld.all()).map_err(database(Path::new("/usr/sbin/policy-rc.d")))
    }

    /// Runs a change of packages; one reading of systemd's units is enough for all of them.
    async fn change(&self, program: Program, tell: Tell<'_>) -> Result<Owed, PackageError> {
        let result = program.with_programs_of("/usr/lib/nodelet/bin").run_telling(tell, progress, &[]).await;
        if withhold::take_reload(&self.root).map_err(database(Path::new("/run/nodelet")))? {
            Program::new("systemctl").arg("daemon-reload").run().await?;
        }
        let owed = self.owed()?;
        result?;
        Ok(owed)
    }

    fn owed(&self) -> Result<Owed, PackageError> {
        withhold::end(&self.root).map_err(database(Path::new("/usr/sbin/policy-rc.d")))
    }

    async fn wait_for_lock(&self, tell: Tell<'_>) -> Result<(), PackageError> {
        let locks =
            ["/var/lib/dpkg/lock-frontend", "/var/lib/dpkg/lock"].map(|path| Lock::Record(self.root.join(path)));
        Ok(locks::wait(&locks, self.limit(), tell).await?)
    }

    /// Which of these packages are held.
    fn held<'a>(&self, names: impl Iterator<Item = &'a String>) -> Result<Vec<&'a String>, PackageError> {
        let installed = dpkg::parse_status(&self.status()?);
        Ok(names.filter(|name| installed.get(*name).is_some_and(|package| package.held)).collect())
    }

    /// apt lets a held package go when it changes it.
    async fn hold_again(&self, held: Vec<&String>) -> Result<(), PackageError> {
        if !held.is_empty() {
            Program::new("apt-mark").arg("hold").args(held).run().await?;
        }
        Ok(())
    }

    async fn mark(&self, verb: &str, package: &str) -> Result<(), PackageError> {
        // apt-mark itself gives up at once.
        self.wait_for_lock(&|_| ()).await?;
        Program::new("apt-mark").arg(verb).arg(package).run().await?;
        Ok(())
    }

    fn limit(&self) -> Duration {
        Duration::from_secs(self.lock_timeout_seconds.into())
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

    /// Reads the lists of the repositories in a directory again. What apt knows of all repositories stays.
    async fn refresh(&self, names: &BTreeSet<String>, overlay: &Overlay, tell: Tell<'_>) -> Result<(), PackageError> {
        // apt-get itself gives up at once when somebody else reads lists.
        let lock = [Lock::Record(self.root.join("/var/lib/apt/lists/lock"))];
        locks::wait(&lock, self.limit(), tell).await?;
        let program = self.apt_get().arg("update").quietly(["-o", "Dir::Etc::SourceList=/dev/null"]);
        program
            .quietly(["-o", &format!("Dir::Etc::SourceParts={}", overlay.refreshed.display())])
            .quietly(["-o", "APT::Get::List-Cleanup=0"])
            // The cache that it would write knows these repositories alone, and would have to be made again.
            .quietly(["-o", "Dir::Cache::pkgcache=", "-o", "Dir::Cache::srcpkgcache="])
            // A repository that can't be read is an error, not a warning.
            .quietly(["-o", "APT::Update::Error-Mode=any"])
            .run_telling(tell, progress, &[])
            .await
            .map_err(|source| PackageError::Refresh { repositories: names.clone(), source })?;
        Ok(())
    }

    /// Reads the lists of all repositories of the host again. One of others that can't be read is not our business.
    async fn refresh_host(&self, overlay: &Overlay, tell: Tell<'_>) -> Result<(), PackageError> {
        let lock = [Lock::Record(self.root.join("/var/lib/apt/lists/lock"))];
        locks::wait(&lock, self.limit(), tell).await?;
        let mut program = self.apt_get().arg("update").quietly(["-o", "APT::Get::List-Cleanup=0"]);
        if let Some(all) = &overlay.all {
            program = program.quietly(["-o", &format!("Dir::Etc::SourceParts={}", all.display())]);
        }
        program.run_telling(tell, progress, &[]).await?;
        Ok(())
    }

    /// Resolves and downloads a transaction.
    async fn download(
        &self,
        transaction: &Transaction,
        overlay: &Overlay,
        tell: Tell<'_>,
    ) -> Result<Staged, PackageError> {
        // Nothing is installed, so nobody has to be waited for.
        let mut program =
            self.install(transaction).quietly(["-o", "Debug::NoLocking=1", "-o", "APT::Get::Show-Versions=1"]);
        if let Some(all) = &overlay.all {
            program = program.quietly(["-o", &format!("Dir::Etc::SourceParts={}", all.display())]);
        }
        let program = program.args(["install", "--download-only"]).args(words(transaction));
        let printed = program.run_telling(tell, progress, &[]).await?;
        let mut staged = read_resolution(&printed);
        if let Some(touches) = &mut staged.touches {
            touches.extend(transaction.names().cloned());
        }
        Ok(staged)
    }

    fn check_space(&self, staged: &Staged) -> Result<(), PackageError> {
        // Old and new files of a package are there side by side while it is unpacked; an archive is about a third of
        // what it unpacks to.
        let unpacked = staged.space.max(3 * staged.download);
        space::check(&self.root.join("/usr"), unpacked, "unpacking the packages")?;
        Ok(space::check(&self.root.join("/var/lib/dpkg"), 0, "dpkg's database")?)
    }
}

fn database(path: &Path) -> impl FnOnce(std::io::Error) -> PackageError {
    let path = path.display().to_string();
    move |source| PackageError::Database { path, source }
}

/// The transaction as apt-get's `install` takes it: `name=version`, and `name-` for a removal.
fn words(transaction: &Transaction) -> Vec<String> {
    let install = transaction.install.iter().chain(&transaction.downgrade).map(|(name, version)| match version {
        Some(version) => format!("{name}={version}"),
        None => name.clone(),
    });
    install.chain(transaction.remove.iter().map(|name| format!("{name}-"))).collect()
}

/// Whether apt knows of no such package or version, by what it said.
fn is_unknown(said: &str) -> bool {
    ["' was not found", "Unable to locate package"].iter().any(|one| said.contains(one))
}

/// How far apt is, from a line such as `pmstatus:clock:33.3:Installing clock (amd64)`.
fn progress(line: &str) -> Option<(u8, &str)> {
    let mut words = line.strip_prefix("dlstatus:").or_else(|| line.strip_prefix("pmstatus:"))?.splitn(3, ':').skip(1);
    let percent = words.next()?.split('.').next()?.parse().ok()?;
    Some((percent, words.next()?))
}

/// What apt is going to do, from what it prints with versions shown.
fn read_resolution(printed: &str) -> Staged {
    let mut staged = Staged { touches: Some(BTreeSet::new()), ..Staged::default() };
    let mut heading = "";
    for line in printed.lines() {
        if let Some(rest) = line.strip_prefix("Need to get ") {
            // `12.3 MB/45 MB of archives`: what is there already isn't downloaded again.
            let size = rest.split(" of ").next().unwrap_or_default();
            staged.download = space::parse_bytes(size.split('/').next().unwrap_or_default()).unwrap_or_default();
        } else if let Some(rest) = line.strip_prefix("After this operation, ") {
            let size = rest.strip_suffix(" of additional disk space will be used.");
            staged.space = size.and_then(space::parse_bytes).unwrap_or_default();
        } else if !line.starts_with(' ') {
            heading = line;
        } else if let Some((name, versions)) = line.trim().split_once(" (") {
            let changes =
                ["NEW packages", "be upgraded", "be DOWNGRADED", "be REMOVED", "held packages", "be reinstalled"];
            if !heading.starts_with("The following") || !changes.iter().any(|words| heading.contains(words)) {
                continue;
            }
            // A star says that its configuration goes too; another architecture than the host's is named.
            let name = name.trim_end_matches('*').split(':').next().unwrap_or_default().to_owned();
            if heading.contains("REMOVED") {
                staged.removes.insert(name.clone());
            } else {
                let version = versions.trim_end_matches(')').rsplit(" => ").next().unwrap_or_default();
                staged.versions.insert(name.clone(), version.to_owned());
            }
            staged.touches.get_or_insert_default().insert(name);
        }
    }
    staged
}

impl PackageManager for Apt {
    fn kind(&self) -> Manager {
        Manager::Apt
    }

    fn installed(&self) -> BoxFuture<'_, Result<Arc<InstalledPackages>, PackageError>> {
        let look = || {
            let metadata = std::fs::metadata(&self.status_file).map_err(database(&self.status_file))?;
            let extended = std::fs::metadata(&self.extended_states).ok();
            let stamp = [Some(Stamp::of(&metadata)), extended.as_ref().map(Stamp::of)];
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((last, packages)) = &*known
                && *last == stamp
            {
                return Ok(Arc::clone(packages));
            }
            let mut packages = dpkg::parse_status(&self.status()?);
            // apt writes it with the first package that comes for another one.
            dpkg::note_automatic(&mut packages, &std::fs::read_to_string(&self.extended_states).unwrap_or_default());
            let packages = Arc::new(packages);
            *known = Some((stamp, Arc::clone(&packages)));
            Ok(packages)
        };
        std::future::ready(look()).boxed()
    }

    fn stage<'a>(&'a self, request: &'a Request<'a>, tell: Tell<'a>) -> BoxFuture<'a, Result<Staged, PackageError>> {
        async move {
            self.make_archives()?;
            let overlay = overlay::build(&self.root, PLACES, request).map_err(database(&self.archives))?;
            if !request.refresh.is_empty() {
                self.refresh(&request.refresh, &overlay, tell).await?;
            }
            let Some(transaction) = &request.transaction else { return Ok(Staged::default()) };
            self.repair(&transaction.withhold, tell).await?;
            let staged = match self.download(transaction, &overlay, tell).await {
                // What apt knows of the distribution's own archive may be older than what is asked for.
                Err(PackageError::Command(error)) if is_unknown(&error.to_string()) => {
                    self.refresh_host(&overlay, tell).await.map_err(|_| error)?;
                    self.download(transaction, &overlay, tell).await?
                }
                other => other?,
            };
            staged.refuse_unasked(transaction, &self.may_remove)?;
            self.check_space(&staged)?;
            Ok(staged)
        }
        .boxed()
    }

    fn transact<'a>(&'a self, wanted: &'a Transaction, tell: Tell<'a>) -> BoxFuture<'a, Result<Owed, PackageError>> {
        async move {
            self.wait_for_lock(tell).await?;
            self.withhold(&wanted.withhold)?;
            let held = self.held(wanted.names())?;
            let program = self.install(wanted).outlives_us().arg("install").args(words(wanted));
            let result = self.change(program, tell).await;
            self.hold_again(held).await?;
            result
        }
        .boxed()
    }

    fn restore<'a>(
        &'a self,
        before: &'a BTreeMap<String, String>,
        touched: Touched<'a>,
        withhold: &'a Withhold,
        tell: Tell<'a>,
    ) -> BoxFuture<'a, Result<Owed, PackageError>> {
        async move {
            self.make_archives()?;
            self.repair(withhold, tell).await?;
            let way = WayBack::find(&dpkg::parse_status(&self.status()?), before, touched);
            if way.is_empty() {
                return self.owed();
            }
            let install = way.install.iter().map(|(name, version)| self.find_version(name, version));
            let words = install.chain(way.remove.iter().map(|name| format!("{name}-")));
            let program =
                self.apt_get().outlives_us().quietly(["--no-install-recommends", "--allow-change-held-packages"]);
            let program = program.args(["--allow-downgrades", "--purge", "install"]).args(words);
            self.wait_for_lock(tell).await?;
            self.withhold(withhold)?;
            let held = self.held(way.install.iter().map(|(name, _)| name))?;
            let result = self.change(program, tell).await;
            self.hold_again(held).await?;
            result
        }
        .boxed()
    }

    fn tidy(&self, before: SystemTime) {
        let Ok(status) = self.status() else { return };
        let kept: BTreeSet<String> = dpkg::parse_status(&status)
            .into_iter()
            .map(|(name, installed)| format!("{name}_{}", installed.version.replace(':', "%3a")))
            .collect();
        for entry in std::fs::read_dir(&self.archives).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let Some((package, _)) = name.strip_suffix(".deb").and_then(|stem| stem.rsplit_once('_')) else { continue };
            // Not when it was written, which is its maker's time, but when it came here.
            let came = entry.metadata().ok().and_then(|file| u64::try_from(file.ctime()).ok());
            let came = came.map(|seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
            if !kept.contains(package) && came.is_some_and(|came| came < before) {
                tracing::debug!(name, "a kept package goes");
                if let Err(error) = std::fs::remove_file(entry.path()) {
                    tracing::warn!(name, %error, "a kept package could not be removed");
                }
            }
        }
    }

    fn wait<'a>(&'a self, tell: Tell<'a>) -> BoxFuture<'a, Result<(), PackageError>> {
        self.wait_for_lock(tell).boxed()
    }

    fn keep<'a>(&'a self, package: &'a str, keep: bool) -> BoxFuture<'a, Result<(), PackageError>> {
        self.mark(if keep { "manual" } else { "auto" }, package).boxed()
    }

    fn hold<'a>(&'a self, package: &'a str, hold: bool) -> BoxFuture<'a, Result<(), PackageError>> {
        self.mark(if hold { "hold" } else { "unhold" }, package).boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resolution_is_read() {
        let printed = "Reading package lists...\n\
            The following packages were automatically installed and are no longer required:\n   unrelated (1.0)\n\
            The following packages will be REMOVED:\n   old* (1.0-1)\n\
            The following NEW packages will be installed:\n   fresh:i386 (3)\n\
            The following held packages will be changed:\n   clock (1.0 => 2:2.0)\n\
            The following packages will be upgraded:\n   clock (1.0 => 2:2.0)\n\
            1 upgraded, 1 newly installed, 1 to remove and 0 not upgraded.\n\
            Need to get 1,500 B/2,944 kB of archives.\n\
            After this operation, 12.3 kB of additional disk space will be used.\n";
        let staged = read_resolution(printed);
        assert_eq!(staged.removes, BTreeSet::from(["old".to_owned()]));
        assert_eq!(staged.versions["clock"], "2:2.0");
        assert_eq!(staged.touches, Some(["old", "fresh", "clock"].map(str::to_owned).into()));
        assert_eq!((staged.download, staged.space), (1500, 12_300));
        let freed = read_resolution("After this operation, 5 MB disk space will be freed.\n");
        assert_eq!(freed.space, 0);
    }

    #[test]
    fn progress_is_read() {
        assert_eq!(progress("pmstatus:clock:33.3333:Installing clock (amd64)"), Some((33, "Installing clock (amd64)")));
        assert_eq!(progress("dlstatus:1:9.09:Retrieving file 1 of 5"), Some((9, "Retrieving file 1 of 5")));
        assert_eq!(progress("Reading package lists..."), None);
    }
}
