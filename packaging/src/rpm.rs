//! Writes an `.rpm` with the `rpm` crate.

use std::path::{Path, PathBuf};

use ::rpm::{BuildConfig, CompressionWithLevel, Dependency, DependencyFlags, FileOptions, PackageBuilder, Scriptlet};
use anyhow::{Context, Result, bail};

use crate::key::SigningKey;
use crate::package::{Entry, Kind, Package, Relations};

/// Writes `NAME-VERSION-RELEASE.ARCH.rpm` into `out_dir`, signed if a key is given, and returns its path.
///
/// The bytes depend on nothing but `package` and the key (Ed25519 signatures are deterministic).
pub fn write(package: &Package, out_dir: &Path, sign: Option<&SigningKey>) -> Result<PathBuf> {
    let attempt = || format!("building {} {} as an .rpm", package.name, package.version);
    let time = u32::try_from(package.timestamp).context("the package's time is not between 1970 and 2106")?;
    let mut builder =
        PackageBuilder::new(&package.name, &package.version, &package.license, package.arch.rpm(), &package.summary);
    builder
        // gzip: every rpm reads it, and it needs no C library.
        .using_config(BuildConfig::v4().source_date(time).compression(CompressionWithLevel::Gzip(9)))
        .release(package.rpm_release())
        .description(package.description.trim())
        .packager(&package.maintainer)
        // The real host's name would differ from build to build.
        .build_host("reproducible");
    if !package.homepage.is_empty() {
        builder.url(&package.homepage);
    }
    for entry in package.sorted_entries().with_context(attempt)?.values() {
        add(&mut builder, entry).with_context(|| format!("adding {} to an .rpm", entry.path))?;
    }
    relate(&mut builder, &package.rpm).with_context(attempt)?;
    scripts(&mut builder, &package.rpm);
    let mut built = builder.build().with_context(attempt)?;
    if let Some(key) = sign {
        key.sign_rpm(&mut built, package.timestamp).with_context(attempt)?;
    }
    let release = package.rpm_release();
    let path = out_dir.join(format!("{}-{}-{release}.{}.rpm", package.name, package.version, package.arch.rpm()));
    built.write_file(&path).with_context(|| format!("writing {}", path.display()))?;
    Ok(path)
}

/// What the package at `path` requires, without what rpm itself or the package provides.
///
/// A host whose base system did not come from RPMs (a test node, say) can be given one package that provides it all.
pub fn requires(path: &Path) -> Result<Vec<String>> {
    let attempt = || format!("reading the requirements of {}", path.display());
    let package = ::rpm::PackageMetadata::open(path).with_context(attempt)?;
    let mut names: Vec<String> = package.get_requires().with_context(attempt)?.into_iter().map(|it| it.name).collect();
    names.retain(|name| !name.starts_with("rpmlib(") && !name.starts_with("config("));
    names.sort();
    names.dedup();
    Ok(names)
}

fn add(builder: &mut PackageBuilder, entry: &Entry) -> Result<()> {
    let mode = u16::try_from(entry.mode).context("permission bits")?;
    match &entry.kind {
        Kind::File(content) => {
            let mut options = FileOptions::new(&entry.path).permissions(mode).user(&entry.owner).group(&entry.group);
            if entry.config {
                options = options.config().noreplace();
            }
            if entry.path.starts_with("/usr/share/doc/") || entry.path.starts_with("/usr/share/man/") {
                options = options.doc();
            }
            builder.with_file_contents(content.clone(), options)?;
        }
        Kind::Directory => {
            let options = FileOptions::dir(&entry.path).permissions(mode).user(&entry.owner).group(&entry.group);
            builder.with_dir_entry(options)?;
        }
        Kind::Symlink(target) => {
            builder.with_symlink(FileOptions::symlink(&entry.path, target).user(&entry.owner).group(&entry.group))?;
        }
    }
    Ok(())
}

fn relate(builder: &mut PackageBuilder, relations: &Relations) -> Result<()> {
    for text in &relations.pre_depends {
        let mut dependency = dependency(text)?;
        dependency.flags |= DependencyFlags::SCRIPT_PRE
            | DependencyFlags::SCRIPT_POST
            | DependencyFlags::SCRIPT_PREUN
            | DependencyFlags::SCRIPT_POSTUN;
        builder.requires(dependency);
    }
    for text in &relations.depends {
        builder.requires(dependency(text)?);
    }
    for text in &relations.recommends {
        builder.recommends(dependency(text)?);
    }
    for text in &relations.suggests {
        builder.suggests(dependency(text)?);
    }
    for text in &relations.provides {
        builder.provides(dependency(text)?);
    }
    for text in &relations.conflicts {
        builder.conflicts(dependency(text)?);
    }
    for text in &relations.replaces {
        builder.obsoletes(dependency(text)?);
    }
    Ok(())
}

/// `name`, or `name OP version` with one of `=`, `<`, `<=`, `>`, `>=`. A rich dependency in parentheses stays whole.
fn dependency(text: &str) -> Result<Dependency> {
    let text = text.trim();
    if text.starts_with('(') {
        return Ok(Dependency::any(text));
    }
    let words: Vec<&str> = text.split_whitespace().collect();
    Ok(match words.as_slice() {
        [name] => Dependency::any(*name),
        [name, "=", version] => Dependency::eq(*name, *version),
        [name, "<", version] => Dependency::less(*name, *version),
        [name, "<=", version] => Dependency::less_eq(*name, *version),
        [name, ">", version] => Dependency::greater(*name, *version),
        [name, ">=", version] => Dependency::greater_eq(*name, *version),
        _ => bail!("{text:?} is no RPM dependency; write it as `name` or `name >= version`"),
    })
}

fn scripts(builder: &mut PackageBuilder, relations: &Relations) {
    let scripts = &relations.scripts;
    let scriptlet = |text: &String| Scriptlet::new(text.as_str()).prog(vec!["/bin/sh"]);
    if let Some(text) = &scripts.pre_install {
        builder.pre_install_script(scriptlet(text));
    }
    if let Some(text) = &scripts.post_install {
        builder.post_install_script(scriptlet(text));
    }
    if let Some(text) = &scripts.pre_remove {
        builder.pre_uninstall_script(scriptlet(text));
    }
    if let Some(text) = &scripts.post_remove {
        builder.post_uninstall_script(scriptlet(text));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn dependencies() {
        assert_eq!(dependency("systemd").unwrap(), Dependency::any("systemd"));
        assert_eq!(dependency("systemd >= 252").unwrap(), Dependency::greater_eq("systemd", "252"));
        assert_eq!(dependency("(a or b)").unwrap(), Dependency::any("(a or b)"));
        assert!(dependency("a >== 1").is_err());
        assert!(dependency("a (>= 1)").is_err());
    }
}
