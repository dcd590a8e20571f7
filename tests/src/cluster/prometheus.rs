//! Debian's Prometheus, run from its package without installing it: installed, it would start as a service of this machine.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use super::{Cluster, Component};
use crate::command::run;
use crate::image::Kind;
use crate::{debian, lock, paths};

/// It opens an empty database in a second; this is for a busy machine.
const START_LIMIT: Duration = Duration::from_secs(60);

impl Cluster {
    /// A Prometheus that watches itself every second, where only this machine reaches it; and its address.
    pub fn prometheus(&self) -> Result<(Component, String)> {
        let program = program()?;
        let address = format!("{}:9090", self.slot.number().loopback());
        let config = self.dir.join("prometheus.yml");
        let scrape = format!(
            "global: {{scrape_interval: 1s}}\n\
             scrape_configs: [{{job_name: self, static_configs: [{{targets: [\"{address}\"]}}]}}]\n"
        );
        fs::write(&config, scrape).with_context(|| format!("writing {}", config.display()))?;
        let component = Component::new("prometheus", &self.slot, program, &self.dir)
            .flag("config.file", config.display())
            .flag("storage.tsdb.path", self.dir.join("prometheus").display())
            .flag("web.listen-address", &address);
        component.start()?;
        let url = format!("http://{address}");
        component.wait_until("Prometheus to be ready", START_LIMIT, || {
            run(Command::new("curl").args(["-fsS", "--noproxy", "*", &format!("{url}/-/ready")]))
        })?;
        Ok((component, url))
    }
}

/// The program, taken out of its package once and kept in the cache.
fn program() -> Result<PathBuf> {
    let debs = debian::download(&Kind::Base.image()?, &["prometheus"])?;
    let named = |path: &&PathBuf| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("prometheus_"))
    };
    let deb = debs.iter().find(named).context("no package of Prometheus among what was downloaded")?;
    let dir = deb.with_extension("unpacked");
    let _lock = lock::take(&paths::cache()?.join("prometheus.lock"), "unpacking Prometheus")?;
    if !dir.is_dir() {
        // Under another name until it is whole.
        let unfinished = deb.with_extension("unfinished");
        run(Command::new("dpkg-deb").arg("--extract").arg(deb).arg(&unfinished))?;
        fs::rename(&unfinished, &dir).with_context(|| format!("putting Prometheus at {}", dir.display()))?;
    }
    Ok(dir.join("usr/bin/prometheus"))
}
