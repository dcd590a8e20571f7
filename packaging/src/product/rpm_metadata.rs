//! `rpm/PACKAGE.toml` and the scriptlets beside it.

use anyhow::Result;
use serde::Deserialize;

use super::Sources;
use crate::elf::Program;
use crate::package::{Relations, Scripts};

/// What the RPM says and the Debian package doesn't.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Metadata {
    pub(super) license: String,
    #[serde(default)]
    pre_requires: Vec<String>,
    #[serde(default)]
    requires: Vec<String>,
    #[serde(default)]
    recommends: Vec<String>,
    #[serde(default)]
    conflicts: Vec<String>,
    #[serde(default)]
    scripts: Files,
}

/// Names of files in `rpm/`.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Files {
    pre: Option<String>,
    post: Option<String>,
    preun: Option<String>,
    postun: Option<String>,
}

impl Metadata {
    pub(super) fn read(text: &str) -> Result<Self> {
        Ok(toml::from_str(text)?)
    }

    pub(super) fn relations(&self, sources: &Sources, program: &Program) -> Result<Relations> {
        let script = |name: &Option<String>| -> Result<Option<String>> {
            name.as_ref().map(|name| sources.read(&format!("rpm/{name}"))).transpose()
        };
        Ok(Relations {
            pre_depends: self.pre_requires.clone(),
            depends: self.requires.iter().cloned().chain(program.rpm_requires()).collect(),
            recommends: self.recommends.clone(),
            conflicts: self.conflicts.clone(),
            scripts: Scripts {
                config: None,
                pre_install: script(&self.scripts.pre)?,
                post_install: script(&self.scripts.post)?,
                pre_remove: script(&self.scripts.preun)?,
                post_remove: script(&self.scripts.postun)?,
            },
            ..Relations::default()
        })
    }
}
