//! Reads from a program which shared libraries it needs, in which versions: what `dpkg-shlibdeps` and rpm's
//! `elfdeps` find out. Only what a 64-bit little-endian program needs, which are all that packages are made for.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail, ensure};

use crate::arch::Arch;

/// Section types of the ELF specification and its GNU extension.
const SECTION_DYNAMIC: u32 = 6;
const SECTION_VERSION_NEEDS: u32 = 0x6fff_fffe;
/// The tag of a dynamic entry that names a needed library.
const TAG_NEEDED: u64 = 1;
/// The type of a program header that names the loader.
const HEADER_INTERPRETER: u32 = 3;
/// Machines.
const MACHINE_X86_64: u16 = 62;
const MACHINE_AARCH64: u16 = 183;

/// What a program needs from the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// The architecture that it was built for.
    pub arch: Arch,
    /// The loader that starts it; none if it is linked statically.
    pub interpreter: Option<String>,
    /// The libraries that it names, each with the symbol versions that it needs of it.
    pub libraries: BTreeMap<String, BTreeSet<String>>,
}

impl Program {
    /// Reads a program.
    pub fn read(content: &[u8]) -> Result<Self> {
        let file = Bytes(content);
        ensure!(content.starts_with(b"\x7fELF"), "it is no ELF file");
        ensure!(content.get(4..6) == Some(&[2, 1]), "it is no 64-bit little-endian ELF file");
        let arch = match file.u16(18)? {
            MACHINE_X86_64 => Arch::Amd64,
            MACHINE_AARCH64 => Arch::Arm64,
            other => bail!("it was built for the machine {other}, for which no packages are made"),
        };
        let sections = Section::table(file)?;
        let mut libraries = BTreeMap::new();
        for section in &sections {
            match section.kind {
                SECTION_DYNAMIC => needed(file, section, &sections, &mut libraries)?,
                SECTION_VERSION_NEEDS => versions(file, section, &sections, &mut libraries)?,
                _ => {}
            }
        }
        Ok(Self { arch, interpreter: interpreter(file)?, libraries })
    }

    /// The Debian packages that hold the libraries, in the versions that hold the symbols.
    pub fn deb_depends(&self) -> Result<Vec<String>> {
        let mut glibc = None;
        let mut depends = BTreeSet::new();
        for (library, versions) in &self.libraries {
            if GLIBC.iter().any(|name| library.starts_with(name)) {
                let newest = versions.iter().filter_map(|version| number(version.strip_prefix("GLIBC_")?)).max();
                glibc = glibc.max(newest.or(Some((0, 0))));
            } else if library == "libgcc_s.so.1" {
                // Nothing newer than GCC_4.2.0 is used by Rust's unwinder; Debian's symbols file says the same.
                depends.insert("libgcc-s1 (>= 4.2)".to_owned());
            } else {
                bail!("the program needs {library}, and packaging/src/elf.rs doesn't know which package has it");
            }
        }
        match glibc {
            Some((0, 0)) => drop(depends.insert("libc6".to_owned())),
            Some((major, minor)) => drop(depends.insert(format!("libc6 (>= {major}.{minor})"))),
            None => {}
        }
        Ok(depends.into_iter().collect())
    }

    /// The same as RPM capabilities: `libc.so.6(GLIBC_2.34)(64bit)`.
    pub fn rpm_requires(&self) -> Vec<String> {
        let mut requires = Vec::new();
        for (library, versions) in &self.libraries {
            // The loader is part of the C library and is provided without the marker.
            if library.starts_with("ld-linux") {
                continue;
            }
            requires.push(format!("{library}()(64bit)"));
            requires.extend(versions.iter().map(|version| format!("{library}({version})(64bit)")));
        }
        requires
    }
}

/// The C library's parts, by the beginning of their file names.
const GLIBC: [&str; 7] =
    ["libc.so.", "libm.so.", "libdl.so.", "libpthread.so.", "librt.so.", "libresolv.so.", "ld-linux"];

/// `2.34`, or `2.3.4` of which the first two count.
fn number(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn interpreter(file: Bytes<'_>) -> Result<Option<String>> {
    let start = file.offset(32)?;
    let size = usize::from(file.u16(54)?);
    for at in (0..usize::from(file.u16(56)?)).map(|index| start + index * size) {
        if file.u32(at)? == HEADER_INTERPRETER {
            return file.text(file.offset(at + 8)?).map(Some);
        }
    }
    Ok(None)
}

fn needed(
    file: Bytes<'_>,
    section: &Section,
    sections: &[Section],
    libraries: &mut BTreeMap<String, BTreeSet<String>>,
) -> Result<()> {
    let names = section.strings(sections)?;
    for entry in (section.offset..section.offset + section.size).step_by(16) {
        if file.u64(entry)? == TAG_NEEDED {
            libraries.entry(file.text(names.offset + file.offset(entry + 8)?)?).or_default();
        }
    }
    Ok(())
}

/// Chains: each needed library points to its first version, each version to the next; zero ends a chain.
fn versions(
    file: Bytes<'_>,
    section: &Section,
    sections: &[Section],
    libraries: &mut BTreeMap<String, BTreeSet<String>>,
) -> Result<()> {
    let names = section.strings(sections)?;
    let mut need = section.offset;
    loop {
        let library = file.text(names.offset + file.index(need + 4)?)?;
        let versions = libraries.entry(library).or_default();
        let mut version = need + file.index(need + 8)?;
        for _ in 0..file.u16(need + 2)? {
            versions.insert(file.text(names.offset + file.index(version + 8)?)?);
            version += file.index(version + 12)?;
        }
        match file.index(need + 12)? {
            0 => return Ok(()),
            next => need += next,
        }
    }
}

/// One line of the section table.
struct Section {
    kind: u32,
    offset: usize,
    size: usize,
    link: usize,
}

impl Section {
    fn table(file: Bytes<'_>) -> Result<Vec<Self>> {
        let start = file.offset(40)?;
        let size = usize::from(file.u16(58)?);
        (0..usize::from(file.u16(60)?))
            .map(|index| {
                let at = start + index * size;
                Ok(Self {
                    kind: file.u32(at + 4)?,
                    offset: file.offset(at + 24)?,
                    size: file.offset(at + 32)?,
                    link: file.index(at + 40)?,
                })
            })
            .collect()
    }

    /// The section that holds this one's names.
    fn strings<'a>(&self, sections: &'a [Self]) -> Result<&'a Self> {
        sections.get(self.link).context("a section of the ELF file points to one that isn't there")
    }
}

/// Reads within bounds.
#[derive(Clone, Copy)]
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn take<const N: usize>(self, at: usize) -> Result<[u8; N]> {
        let bytes = at.checked_add(N).and_then(|end| self.0.get(at..end)).context("the ELF file is cut short")?;
        Ok(bytes.try_into()?)
    }

    fn u16(self, at: usize) -> Result<u16> {
        self.take(at).map(u16::from_le_bytes)
    }

    fn u32(self, at: usize) -> Result<u32> {
        self.take(at).map(u32::from_le_bytes)
    }

    fn u64(self, at: usize) -> Result<u64> {
        self.take(at).map(u64::from_le_bytes)
    }

    /// A 32-bit value that is used as an index.
    fn index(self, at: usize) -> Result<usize> {
        Ok(usize::try_from(self.u32(at)?)?)
    }

    /// A 64-bit value that is used as an offset. Halved, so that sums of two can't overflow.
    fn offset(self, at: usize) -> Result<usize> {
        let value = usize::try_from(self.u64(at)?)?;
        ensure!(value <= self.0.len(), "the ELF file points behind its own end");
        Ok(value)
    }

    fn text(self, at: usize) -> Result<String> {
        let bytes = self.0.get(at..).context("the ELF file is cut short")?;
        let end = bytes.iter().position(|byte| *byte == 0).context("a name in the ELF file has no end")?;
        Ok(std::str::from_utf8(&bytes[..end])?.to_owned())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn this_very_program() {
        let content = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let program = Program::read(&content).unwrap();
        assert_eq!(program.arch, Arch::host().unwrap());
        let loader = program.interpreter.clone().unwrap();
        assert!(loader.contains("/ld-linux"), "{loader}");
        let depends = program.deb_depends().unwrap();
        assert!(depends.iter().any(|depend| depend.starts_with("libc6 (>= 2.")), "{depends:?}");
        let requires = program.rpm_requires();
        assert!(requires.contains(&"libc.so.6()(64bit)".to_owned()), "{requires:?}");
        assert!(requires.iter().any(|require| require.starts_with("libc.so.6(GLIBC_2.")), "{requires:?}");
    }

    #[test]
    fn the_newest_symbol_decides() {
        let libraries = BTreeMap::from([
            ("libc.so.6".to_owned(), BTreeSet::from(["GLIBC_2.9".to_owned(), "GLIBC_2.34".to_owned()])),
            ("libm.so.6".to_owned(), BTreeSet::from(["GLIBC_2.29".to_owned()])),
        ]);
        let program = Program { arch: Arch::Amd64, interpreter: None, libraries };
        assert_eq!(program.deb_depends().unwrap(), ["libc6 (>= 2.34)"]);
    }

    #[test]
    fn what_is_no_program_is_refused() {
        for (content, message) in [
            (&b"#!/bin/sh"[..], "no ELF file"),
            (b"\x7fELF\x01\x01", "64-bit"),
            (b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x3e\0", "cut short"),
        ] {
            let error = Program::read(content).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }
}
