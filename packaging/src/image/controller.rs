//! node-controller's image: the program, what it is linked with, and a user to run it as. Nothing else: no shell, no
//! package manager, nothing that would need updates of its own except the C library.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::{Image, libraries};
use crate::elf::Program;

/// The image's name without its tag; no registry has it.
pub const CONTROLLER: &str = "nodelet.dev/node-controller";
/// Who runs it: the number that images without a distribution commonly take for "not root".
const USER: u32 = 65532;

/// The image of this version around the program at `binary`.
pub fn controller(binary: &Path, version: &str) -> Result<Image> {
    let shown = || format!("examining the program {}", binary.display());
    let content = fs::read(binary).with_context(shown)?;
    let program = Program::read(&content).with_context(shown)?;
    let mut image = Image::new(program.arch)
        .name(format!("{CONTROLLER}:{version}"))
        .file("/node-controller", 0o755, content)
        .file("/etc/passwd", 0o644, format!("node-controller:x:{USER}:{USER}::/:/none\n"))
        .file("/etc/group", 0o644, format!("node-controller:x:{USER}:\n"))
        .entrypoint(&["/node-controller"])
        .command(&["run"])
        .user(USER, USER)
        .label("org.opencontainers.image.title", "node-controller")
        .label("org.opencontainers.image.version", version)
        .label("org.opencontainers.image.licenses", env!("CARGO_PKG_LICENSE"))
        .label("org.opencontainers.image.url", env!("CARGO_PKG_HOMEPAGE"));
    for library in libraries::of(binary, &program)? {
        let content = fs::read(&library).with_context(|| format!("reading the library {library}"))?;
        image = image.file(library, 0o755, content);
    }
    Ok(image)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    /// Any program will do: this one.
    #[test]
    fn it_holds_what_the_program_needs_and_nothing_else() {
        let path = std::env::current_exe().unwrap();
        let image = controller(&path, "1.2.3").unwrap();
        assert_eq!(image.names(), ["nodelet.dev/node-controller:1.2.3"]);
        let program = Program::read(&fs::read(&path).unwrap()).unwrap();
        let mut wanted = libraries::of(&path, &program).unwrap();
        wanted.extend(["/node-controller", "/etc/passwd", "/etc/group"].map(str::to_owned));
        assert_eq!(image.entries.keys().cloned().collect::<Vec<_>>(), wanted.into_iter().collect::<Vec<_>>());
        assert_eq!(image.user.as_deref(), Some("65532:65532"));
        assert_eq!(image.archive().unwrap(), controller(&path, "1.2.3").unwrap().archive().unwrap());
    }

    #[test]
    fn what_is_no_program_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "#!/bin/sh\n").unwrap();
        let error = format!("{:#}", controller(file.path(), "1.0").unwrap_err());
        assert!(error.contains("examining the program") && error.contains("no ELF file"), "{error}");
    }
}
