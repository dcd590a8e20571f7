//! systemd over D-Bus. Each method says which `systemctl` command it stands for.

use futures::StreamExt;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use zbus::OwnedObjectPath;
use zbus::OwnedVariant;
use zbus_systemd::systemd1::{ManagerProxy, ServiceProxy, UnitProxy};

/// systemd's own limit for a start or stop is 90 s by default; a unit may stop and start in one job.
const JOB_LIMIT: Duration = Duration::from_secs(300);

/// What went wrong with systemd.
#[derive(Debug, thiserror::Error)]
pub enum SystemdError {
    /// The bus can't be reached.
    #[error("reaching systemd over the system bus: {0}; is dbus running (`systemctl status dbus`)?")]
    Bus(zbus::Error),
    /// systemd refused.
    #[error("{what}: {source}")]
    Refused {
        /// What was asked.
        what: String,
        /// systemd's answer.
        source: zbus::Error,
    },
    /// A job ended otherwise than `done`.
    #[error("{what} ended as `{result}`: see `journalctl -u {unit}`")]
    Job {
        /// What was asked.
        what: String,
        /// The unit.
        unit: String,
        /// systemd's word for it.
        result: String,
    },
    /// A job did not end.
    #[error("{what} has no result after {} s: see `systemctl list-jobs`", JOB_LIMIT.as_secs())]
    JobTimedOut {
        /// What was asked.
        what: String,
    },
}

/// A unit as systemd sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitSeen {
    /// `loaded`, `not-found`, `masked`, …
    pub load: String,
    /// `active`, `inactive`, `failed`, `activating`, …
    pub active: String,
    /// `enabled`, `disabled`, `static`, `masked`, …; empty when there is no unit file.
    pub file: String,
}

impl UnitSeen {
    /// It runs, or is about to.
    pub fn is_up(&self) -> bool {
        matches!(self.active.as_str(), "active" | "activating" | "reloading" | "refreshing")
    }

    /// It can't be started.
    pub fn is_masked(&self) -> bool {
        self.file.starts_with("masked") || self.load == "masked"
    }

    /// It starts at boot.
    pub fn is_enabled(&self) -> bool {
        matches!(self.file.as_str(), "enabled" | "enabled-runtime" | "alias")
    }
}

/// When a directory of units, or one of those for enablement in it, last changed.
fn newest(directory: &Path) -> SystemTime {
    let changed = |path: &Path| path.metadata().and_then(|metadata| metadata.modified()).unwrap_or(UNIX_EPOCH);
    let links = |path: &PathBuf| {
        path.extension().is_some_and(|kind| ["wants", "requires", "upholds"].iter().any(|it| kind == *it))
    };
    let below = std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    below.filter(links).map(|path| changed(&path)).fold(changed(directory), SystemTime::max)
}

/// How a job is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Job {
    /// `systemctl start`
    Start,
    /// `systemctl stop`
    Stop,
    /// `systemctl restart`, which starts a stopped unit
    Restart,
    /// `systemctl reload`
    Reload,
}

impl Job {
    fn verb(self) -> &'static str {
        match self {
            Self::Start => "starting",
            Self::Stop => "stopping",
            Self::Restart => "restarting",
            Self::Reload => "reloading",
        }
    }
}

/// systemd of this host, over one connection.
#[derive(Clone, Debug)]
pub struct Systemd {
    manager: ManagerProxy<'static>,
}

impl Systemd {
    /// Connects to the system bus.
    pub async fn connect() -> Result<Self, SystemdError> {
        let connection = zbus::Connection::system().await.map_err(SystemdError::Bus)?;
        let manager = ManagerProxy::new(&connection).await.map_err(SystemdError::Bus)?;
        // Without it systemd sends no JobRemoved signals.
        manager.subscribe().await.map_err(SystemdError::Bus)?;
        Ok(Self { manager })
    }

    /// The connection to the bus.
    pub fn connection(&self) -> &zbus::Connection {
        self.manager.inner().connection()
    }

    /// The object of a unit, which systemd loads for it.
    pub async fn unit_path(&self, unit: &str) -> zbus::Result<String> {
        self.manager.load_unit(unit.to_owned()).await.map(|path| path.to_string())
    }

    /// What names the current run of a unit: `systemctl show -P InvocationID UNIT`; `None` when it never ran
    pub async fn invocation(&self, unit: &str) -> Option<String> {
        let path = self.manager.load_unit(unit.to_owned()).await.ok()?;
        let unit = UnitProxy::new(self.connection(), path).await.ok()?;
        let bytes = unit.invocation_id().await.ok().filter(|bytes| !bytes.is_empty())?;
        Some(bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}")))
    }

    /// Since when a unit is active: `systemctl show -P ActiveEnterTimestamp UNIT`
    pub async fn active_since(&self, unit: &str) -> Option<SystemTime> {
        let path = self.manager.load_unit(unit.to_owned()).await.ok()?;
        let unit = UnitProxy::new(self.connection(), path).await.ok()?;
        let microseconds = unit.active_enter_timestamp().await.ok().filter(|at| *at > 0)?;
        Some(UNIX_EPOCH + Duration::from_micros(microseconds))
    }

    /// How often systemd itself started a service again since somebody asked for it: `systemctl show -P NRestarts`
    pub async fn automatic_restarts(&self, unit: &str) -> u32 {
        let Ok(path) = self.manager.load_unit(unit.to_owned()).await else { return 0 };
        match ServiceProxy::new(self.connection(), path).await {
            // Units that are no services have none.
            Ok(service) => service.n_restarts().await.unwrap_or(0),
            Err(_) => 0,
        }
    }

    /// `systemctl list-units NAME…` and `systemctl is-enabled NAME…`
    pub async fn units(&self, names: &[String]) -> Result<BTreeMap<String, UnitSeen>, SystemdError> {
        if names.is_empty() {
            return Ok(BTreeMap::new());
        }
        // A template can't run, so systemd refuses to list it; it has a unit file all the same.
        let (templates, plain): (Vec<String>, Vec<String>) =
            names.iter().cloned().partition(|name| name.contains("@."));
        let listed = self.manager.list_units_by_names(plain.clone()).await;
        let listed = listed.map_err(|source| SystemdError::Refused { what: "listing units".into(), source })?;
        // The answer is in the order of the question, and names an alias by the unit behind it.
        let states = listed.into_iter().map(|(_, _, load, active, _, _, path, ..)| (load, active, Some(path)));
        let template = |name| (name, ("loaded".to_owned(), "inactive".to_owned(), None));
        let fresh = self.unit_files_are_as_loaded().await;
        // All questions at once: systemd answers them in turn, and nobody waits for each answer.
        let seen = plain.into_iter().zip(states).chain(templates.into_iter().map(template));
        let seen = seen.map(|(name, (load, active, path))| async move {
            let known = match path.filter(|_| fresh && load == "loaded") {
                Some(path) => self.property::<String>(&path, "Unit", "UnitFileState").await.ok(),
                None => None,
            };
            let file = match known.filter(|file| !file.is_empty()) {
                Some(file) => file,
                // An error here says that there is no unit file, which `not-found` says already.
                None => self.manager.get_unit_file_state(name.clone()).await.unwrap_or_default(),
            };
            (name, UnitSeen { load, active, file })
        });
        Ok(futures::future::join_all(seen).await.into_iter().collect())
    }

    /// Whether what systemd remembers of unit files is what is on disk: it remembers their enablement from when it read
    /// them last, and looking anew costs it ten times as much.
    pub async fn unit_files_are_as_loaded(&self) -> bool {
        let path = "/org/freedesktop/systemd1";
        let Ok(loaded) = self.property::<u64>(path, "Manager", "UnitsLoadTimestamp").await else { return false };
        let loaded = UNIX_EPOCH + Duration::from_micros(loaded);
        ["/etc/systemd/system", "/run/systemd/system"].iter().all(|directory| newest(directory.as_ref()) < loaded)
    }

    /// One property, asked for each time: `systemctl show -P NAME`
    async fn property<T>(&self, path: &str, interface: &str, name: &str) -> zbus::Result<T>
    where
        T: TryFrom<OwnedVariant>,
        T::Error: Into<zbus::Error>,
    {
        let interface = format!("org.freedesktop.systemd1.{interface}");
        let (destination, properties) = ("org.freedesktop.systemd1", "org.freedesktop.DBus.Properties");
        let question = (interface.as_str(), name);
        let answer = self.connection().call_method(Some(destination), path, Some(properties), "Get", &question).await?;
        let value: OwnedVariant = answer.body().deserialize()?;
        T::try_from(value).map_err(Into::into)
    }

    /// Whether the machine is going down: `systemctl is-system-running` says `stopping`
    pub async fn is_shutting_down(&self) -> bool {
        self.manager.system_state().await.is_ok_and(|state| state == "stopping")
    }

    /// Whether systemd answers, and the machine is not going down: what fails otherwise says nothing of the step.
    pub async fn is_there_to_stay(&self) -> bool {
        self.manager.system_state().await.is_ok_and(|state| state != "stopping")
    }

    /// `systemctl daemon-reload`
    pub async fn daemon_reload(&self) -> Result<(), SystemdError> {
        self.manager
            .reload()
            .await
            .map_err(|source| SystemdError::Refused { what: "reloading systemd's units".into(), source })
    }

    /// `systemctl enable UNIT`
    pub async fn enable(&self, unit: &str) -> Result<(), SystemdError> {
        let result = self.manager.enable_unit_files(vec![unit.to_owned()], false, true).await;
        result.map(|_| ()).map_err(|source| SystemdError::Refused { what: format!("enabling {unit}"), source })
    }

    /// `systemctl disable UNIT`
    pub async fn disable(&self, unit: &str) -> Result<(), SystemdError> {
        let result = self.manager.disable_unit_files(vec![unit.to_owned()], false).await;
        result.map(|_| ()).map_err(|source| SystemdError::Refused { what: format!("disabling {unit}"), source })
    }

    /// `systemctl reset-failed UNIT`
    pub async fn reset_failed(&self, unit: &str) -> Result<(), SystemdError> {
        let result = self.manager.reset_failed_unit(unit.to_owned()).await;
        result.map_err(|source| SystemdError::Refused { what: format!("resetting {unit}"), source })
    }

    /// `systemctl mask UNIT`
    pub async fn mask(&self, unit: &str) -> Result<(), SystemdError> {
        let result = self.manager.mask_unit_files(vec![unit.to_owned()], false, true).await;
        result.map(|_| ()).map_err(|source| SystemdError::Refused { what: format!("masking {unit}"), source })
    }

    /// `systemctl unmask UNIT`
    pub async fn unmask(&self, unit: &str) -> Result<(), SystemdError> {
        let result = self.manager.unmask_unit_files(vec![unit.to_owned()], false).await;
        result.map(|_| ()).map_err(|source| SystemdError::Refused { what: format!("unmasking {unit}"), source })
    }

    /// Asks for a job and waits until it is done.
    pub async fn job(&self, job: Job, unit: &str) -> Result<(), SystemdError> {
        let what = format!("{} {unit}", job.verb());
        let refused = |source| SystemdError::Refused { what: what.clone(), source };
        // The stream first: a job may end before the answer to the call is read.
        let mut removed = self.manager.receive_job_removed().await.map_err(refused)?;
        if matches!(job, Job::Start | Job::Restart) {
            // `systemctl reset-failed`: systemd counts our own starts against the unit's limit, and several changes
            // within seconds must not end in "start request repeated too quickly". An unknown unit is told below.
            let _ = self.reset_failed(unit).await;
        }
        let (name, mode) = (unit.to_owned(), "replace".to_owned());
        let path: OwnedObjectPath = match job {
            Job::Start => self.manager.start_unit(name, mode).await,
            Job::Stop => self.manager.stop_unit(name, mode).await,
            Job::Restart => self.manager.restart_unit(name, mode).await,
            Job::Reload => self.manager.reload_unit(name, mode).await,
        }
        .map_err(refused)?;
        let ended = async {
            while let Some(signal) = removed.next().await {
                let Ok(ended) = signal.args() else { continue };
                if ended.job().as_str() == path.as_str() {
                    return ended.result().clone();
                }
            }
            "the bus connection closed".to_owned()
        };
        match tokio::time::timeout(JOB_LIMIT, ended).await {
            Ok(result) if result == "done" => Ok(()),
            Ok(result) => Err(SystemdError::Job { what, unit: unit.to_owned(), result }),
            Err(_) => Err(SystemdError::JobTimedOut { what }),
        }
    }
}
