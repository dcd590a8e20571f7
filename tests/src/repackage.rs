//! Two versions of a real package, where the archive has only one: the same files under another number.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use packaging::deb;

use crate::command::run;

/// The version in a `.deb`.
pub fn version(deb: &Path) -> Result<String> {
    deb::fields(deb)?.require("Version").map(str::to_owned)
}

/// Unpacks a `.deb`, lets `edit` change its files, and packs it again in `out` as another version.
pub fn as_version(deb: &Path, version: &str, out: &Path, edit: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    let fields = deb::fields(deb)?;
    let (name, arch) = (fields.require("Package")?, fields.require("Architecture")?);
    let attempt = || format!("repackaging {name} as {version}");
    fs::create_dir_all(out).with_context(attempt)?;
    let tree = tempfile::tempdir_in(out).with_context(attempt)?;
    // Its mode becomes that of `/` in the package.
    let files = tree.path().join("files");
    run(Command::new("dpkg-deb").arg("--raw-extract").arg(deb).arg(&files)).with_context(attempt)?;
    let control = files.join("DEBIAN/control");
    let text = fs::read_to_string(&control).with_context(attempt)?;
    fs::write(&control, renumbered(&text, version)).with_context(attempt)?;
    edit(&files).with_context(attempt)?;
    // Like Debian's own, the file's name has no epoch.
    let numbers = version.split_once(':').map_or(version, |(_, rest)| rest);
    let built = out.join(format!("{name}_{numbers}_{arch}.deb"));
    // The quickest compression: the package is read once.
    run(Command::new("dpkg-deb").args(["--root-owner-group", "-Zzstd", "-z1", "--build"]).arg(&files).arg(&built))
        .with_context(attempt)?;
    Ok(built)
}

/// Replaces a version in a file by one of the same length, which leaves a program's layout as it is.
pub fn replace_version(file: &Path, from: &str, to: &str) -> Result<()> {
    if from.len() != to.len() {
        bail!("{from:?} and {to:?} differ in length");
    }
    let pattern = from.replace('.', "\\.");
    let script = "LC_ALL=C grep -qaF -e \"$2\" \"$1\" && LC_ALL=C sed -i \"s/$3/$4/g\" \"$1\"";
    run(Command::new("sh").args(["-euc", script, "sh"]).arg(file).args([from, &pattern, to]))
        .map(drop)
        .with_context(|| format!("replacing {from} in {}: is it there?", file.display()))
}

/// The next patch release of the same length, where there is one: `1.6.21~ds1-1` after `1.6.20~ds1-1`.
pub fn following(version: &str) -> Option<String> {
    let end = version.find(|letter: char| letter != '.' && !letter.is_ascii_digit()).unwrap_or(version.len());
    let start = version[..end].rfind('.')? + 1;
    let next = (version[start..end].parse::<u32>().ok()? + 1).to_string();
    (next.len() == end - start).then(|| format!("{}{next}{}", &version[..start], &version[end..]))
}

fn renumbered(control: &str, version: &str) -> String {
    control
        .lines()
        .map(|line| if line.starts_with("Version:") { format!("Version: {version}\n") } else { format!("{line}\n") })
        .collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_release_follows_if_it_is_as_long() {
        assert_eq!(following("1.6.20~ds1-1+deb12u3").unwrap(), "1.6.21~ds1-1+deb12u3");
        assert_eq!(following("1.7.9-1"), None);
        assert_eq!(following("5"), None);
    }

    #[test]
    fn another_number_and_the_same_files() {
        let dir = tempfile::tempdir().unwrap();
        let built = deb::write(&crate::dummy::plain("thing", "1.0"), dir.path()).unwrap();
        let place = "usr/share/thing/version";
        let again = as_version(&built, "1:2.0", &dir.path().join("again"), |tree| {
            replace_version(&tree.join(place), "1.0", "2.0")
        })
        .unwrap();
        assert_eq!((version(&built).unwrap().as_str(), version(&again).unwrap().as_str()), ("1.0", "1:2.0"));
        run(Command::new("dpkg-deb").arg("--raw-extract").arg(&again).arg(dir.path().join("files"))).unwrap();
        assert_eq!(fs::read_to_string(dir.path().join("files").join(place)).unwrap(), "2.0\n");
        assert!(replace_version(&again, "7.7.7", "8.8.8").is_err());
    }
}
