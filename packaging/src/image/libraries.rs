//! The shared libraries and the loader without which a program does not start.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::elf::Program;

/// The paths of everything that the loader would map for a program: the loader itself and all libraries, those of
/// libraries too. None if it is linked statically.
///
/// The loader is asked, as `ldd` does it. Without its cache, because an image has none: what is found so is found at
/// the same path in the image.
pub(super) fn of(path: &Path, program: &Program) -> Result<BTreeSet<String>> {
    let Some(loader) = &program.interpreter else {
        return Ok(BTreeSet::new());
    };
    let shown = || format!("asking the loader {loader} for the libraries of {}", path.display());
    let path = path.canonicalize().with_context(shown)?;
    let asked = Command::new(loader).args(["--inhibit-cache", "--list"]).arg(path).output();
    let asked = asked.with_context(shown).context("an image is built on a machine that can run the program")?;
    let text = String::from_utf8_lossy(&asked.stdout);
    ensure!(asked.status.success(), "{}: {}{text}", shown(), String::from_utf8_lossy(&asked.stderr));
    let mut found = listed(&text).with_context(shown)?;
    found.insert(loader.clone());
    Ok(found)
}

/// `libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x…)`, or a path alone, or what the kernel provides and has no file.
fn listed(text: &str) -> Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    for line in text.lines().map(str::trim) {
        let (name, place) = line.split_once(" => ").unwrap_or((line, line));
        let place = place.split(" (").next().unwrap_or_default().trim();
        if place.starts_with('/') {
            found.insert(place.to_owned());
        } else if place == "not found" {
            bail!("{name} is in none of the loader's own directories: link the program so that it doesn't need it");
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::arch::Arch;
    use std::collections::BTreeMap;

    #[test]
    fn lines_of_the_loader() {
        let text = "\tlinux-vdso.so.1 (0x00007f44d942e000)\n\tlibc.so.6 => /lib/x/libc.so.6 (0x00007f44d773e000)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f44d9430000)\n";
        let found: Vec<String> = listed(text).unwrap().into_iter().collect();
        assert_eq!(found, ["/lib/x/libc.so.6", "/lib64/ld-linux-x86-64.so.2"]);
        let error = listed("\tlibodd.so.1 => not found\n").unwrap_err().to_string();
        assert!(error.contains("libodd.so.1 is in none"), "{error}");
    }

    #[test]
    fn this_very_program() {
        let path = std::env::current_exe().unwrap();
        let program = Program::read(&std::fs::read(&path).unwrap()).unwrap();
        let found = of(&path, &program).unwrap();
        for library in program.libraries.keys() {
            assert!(found.iter().any(|path| path.ends_with(&format!("/{library}"))), "{library} is not in {found:?}");
        }
        assert!(found.contains(program.interpreter.as_ref().unwrap()));
        assert!(found.iter().all(|path| Path::new(path).is_file()), "{found:?}");
    }

    #[test]
    fn a_static_program_needs_none() {
        let program = Program { arch: Arch::Amd64, interpreter: None, libraries: BTreeMap::new() };
        assert!(of(Path::new("/nowhere"), &program).unwrap().is_empty());
    }
}
