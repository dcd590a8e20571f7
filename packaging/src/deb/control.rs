//! The control archive: the `control` paragraph, checksums, conffiles and maintainer scripts.

use std::fmt::Write;

use anyhow::{Result, ensure};

use super::tarball::Tarball;
use crate::digest;
use crate::package::{Kind, Package};

pub(super) fn tarball(package: &Package) -> Result<Vec<u8>> {
    let mut tarball = Tarball::new(package.timestamp)?;
    tarball.root()?;
    let conffiles = conffiles(package)?;
    let scripts = &package.deb.scripts;
    // In the order of their names, as dpkg-deb writes them.
    if !conffiles.is_empty() {
        tarball.control("conffiles", 0o644, conffiles.as_bytes())?;
    }
    script(&mut tarball, "config", scripts.config.as_deref())?;
    tarball.control("control", 0o644, paragraph(package)?.as_bytes())?;
    tarball.control("md5sums", 0o644, md5sums(package)?.as_bytes())?;
    script(&mut tarball, "postinst", scripts.post_install.as_deref())?;
    script(&mut tarball, "postrm", scripts.post_remove.as_deref())?;
    script(&mut tarball, "preinst", scripts.pre_install.as_deref())?;
    script(&mut tarball, "prerm", scripts.pre_remove.as_deref())?;
    if let Some(templates) = &package.deb.templates {
        tarball.control("templates", 0o644, templates.as_bytes())?;
    }
    if let Some(triggers) = &package.deb.triggers {
        tarball.control("triggers", 0o644, triggers.as_bytes())?;
    }
    tarball.finish()
}

fn script(tarball: &mut Tarball, name: &str, text: Option<&str>) -> Result<()> {
    let Some(text) = text else { return Ok(()) };
    let whole = if text.starts_with("#!") { text.to_owned() } else { format!("#!/bin/sh\nset -e\n{text}\n") };
    tarball.control(name, 0o755, whole.as_bytes())
}

fn paragraph(package: &Package) -> Result<String> {
    let relations = &package.deb;
    let mut text = String::new();
    let mut field = |name: &str, value: &str| -> Result<()> {
        ensure!(!value.contains('\n'), "the field {name} must be one line: {value:?}");
        if !value.is_empty() {
            writeln!(text, "{name}: {value}")?;
        }
        Ok(())
    };
    field("Package", &package.name)?;
    field("Version", &package.deb_version())?;
    field("Architecture", package.arch.deb())?;
    field("Maintainer", &package.maintainer)?;
    field("Installed-Size", &installed_size(package)?.to_string())?;
    field("Pre-Depends", &relations.pre_depends.join(", "))?;
    field("Depends", &relations.depends.join(", "))?;
    field("Recommends", &relations.recommends.join(", "))?;
    field("Suggests", &relations.suggests.join(", "))?;
    field("Conflicts", &relations.conflicts.join(", "))?;
    field("Replaces", &relations.replaces.join(", "))?;
    field("Provides", &relations.provides.join(", "))?;
    field("Section", &package.section)?;
    field("Priority", &package.priority)?;
    field("Homepage", &package.homepage)?;
    field("Description", &package.summary)?;
    for line in package.description.trim().lines() {
        // An empty line ends the paragraph; a single dot stands for it.
        writeln!(text, " {}", if line.trim().is_empty() { "." } else { line.trim_end() })?;
    }
    Ok(text)
}

/// In KiB, as dpkg-gencontrol counts: each file rounded up, one for everything else.
fn installed_size(package: &Package) -> Result<u64> {
    let entries = package.sorted_entries()?;
    let mut parents = std::collections::BTreeSet::from([""]);
    let mut size = 0;
    for (path, entry) in &entries {
        size += match &entry.kind {
            Kind::File(content) => (content.len() as u64).div_ceil(1024),
            Kind::Directory | Kind::Symlink(_) => 1,
        };
        parents.extend(path.match_indices('/').skip(1).map(|(position, _)| &path[..position]));
    }
    let implied = parents.iter().filter(|parent| !entries.contains_key(**parent)).count();
    Ok(size + implied as u64)
}

fn md5sums(package: &Package) -> Result<String> {
    let mut text = String::new();
    for (path, entry) in package.sorted_entries()? {
        if let (Kind::File(content), false) = (&entry.kind, entry.config) {
            writeln!(text, "{}  {}", digest::md5(content), path.trim_start_matches('/'))?;
        }
    }
    Ok(text)
}

fn conffiles(package: &Package) -> Result<String> {
    let mut text = String::new();
    for (path, entry) in package.sorted_entries()? {
        if entry.config {
            ensure!(matches!(entry.kind, Kind::File(_)), "{path}: only a file can be a configuration file");
            writeln!(text, "{path}")?;
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn the_paragraph_is_folded_and_sized() {
        let mut package = Package::new("demo", "1.0").file("/usr/bin/demo", 0o755, vec![0; 1025]);
        package.summary = "a demo".into();
        package.description = "First.\n\nSecond.".into();
        package.deb.depends = vec!["a".into(), "b (>= 2)".into()];
        let text = paragraph(&package).unwrap();
        assert!(text.contains("Depends: a, b (>= 2)\n"), "{text}");
        assert!(text.contains("Description: a demo\n First.\n .\n Second.\n"), "{text}");
        // Two for the file, one each for ".", "/usr" and "/usr/bin".
        assert!(text.contains("Installed-Size: 5\n"), "{text}");
    }

    #[test]
    fn checksums_leave_conffiles_out() {
        let package = Package::new("demo", "1.0").config_file("/etc/demo", 0o600, "x").file("/usr/demo", 0o644, "");
        assert_eq!(conffiles(&package).unwrap(), "/etc/demo\n");
        assert_eq!(md5sums(&package).unwrap(), "d41d8cd98f00b204e9800998ecf8427e  usr/demo\n");
    }
}
