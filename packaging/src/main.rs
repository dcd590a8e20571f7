//! The command line of the packaging tool.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::{Parser, Subcommand};
use packaging::key::SigningKey;
use packaging::product::{Format, Product, Sources};
use packaging::repository::{apt, dnf};

/// Whose key signs the repositories, where one has to be made.
const KEY_OWNER: &str = "nodelet packages <packages@nodelet.dev>";

/// Builds nodelet's packages, the repositories that hold them, and node-controller's image.
#[derive(Parser)]
struct Arguments {
    /// The checkout to read [default: the one around the working directory]
    #[arg(long, global = true)]
    root: Option<PathBuf>,
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Build the .deb and the .rpm around a program
    Build {
        /// What is packaged
        #[arg(long, value_enum, default_value = "nodelet")]
        package: Product,
        /// Its program
        #[arg(long)]
        binary: PathBuf,
        /// Where the packages are written
        #[arg(long)]
        out: PathBuf,
        /// Build this version, whatever debian/changelog says
        #[arg(long)]
        version: Option<String>,
        /// Which formats
        #[arg(long, value_delimiter = ',', default_value = "deb,rpm")]
        formats: Vec<Format>,
    },
    /// Make apt/ and dnf/ of the packages in a directory, signed
    Repository {
        /// The directory that holds .deb and .rpm files
        #[arg(long)]
        packages: PathBuf,
        /// Where apt/ and dnf/ are written
        #[arg(long)]
        out: PathBuf,
        /// The armored secret key; made if the file is missing
        #[arg(long)]
        key: PathBuf,
    },
    /// Build node-controller's container image, as an archive to import
    Image {
        /// The node-controller program
        #[arg(long)]
        binary: PathBuf,
        /// The archive to write
        #[arg(long)]
        out: PathBuf,
        /// The image's tag
        #[arg(long, default_value = env!("CARGO_PKG_VERSION"))]
        version: String,
    },
    /// Write the files that are generated from nodelet's types
    #[cfg(feature = "generate")]
    Generate {
        /// Change nothing; fail with a list of the stale files
        #[arg(long)]
        check: bool,
    },
}

fn main() -> Result<()> {
    let Arguments { root, action } = Arguments::parse();
    let sources = root.map_or_else(Sources::find, |root| Ok(Sources::new(root)))?;
    match action {
        Action::Build { package, binary, out, version, formats } => {
            let sources = sources.of(package);
            let version = sources.version(version.as_deref())?;
            for path in sources.build(&binary, &version, &formats, &out)? {
                println!("{}", path.display());
            }
            Ok(())
        }
        Action::Image { binary, out, version } => {
            let image = packaging::image::controller(&binary, &version)?;
            image.write(&out)?;
            println!("{} {}", out.display(), image.names().join(" "));
            Ok(())
        }
        Action::Repository { packages, out, key } => repository(&sources, &packages, &out, &key),
        #[cfg(feature = "generate")]
        Action::Generate { check: true } => packaging::generate::check(sources.root()),
        #[cfg(feature = "generate")]
        Action::Generate { check: false } => {
            for path in packaging::generate::write(sources.root())? {
                println!("{path}");
            }
            Ok(())
        }
    }
}

fn repository(sources: &Sources, packages: &Path, out: &Path, key: &Path) -> Result<()> {
    let debs = files(packages, "deb")?;
    let rpms = files(packages, "rpm")?;
    ensure!(!debs.is_empty() || !rpms.is_empty(), "{} holds no .deb and no .rpm", packages.display());
    let date = sources.timestamp()?;
    let key = SigningKey::load_or_generate(key, KEY_OWNER, date)?;
    if !debs.is_empty() {
        apt::write(&out.join("apt"), &debs, &apt::AptOptions::new("nodelet", date), &key)?;
        println!("{}", out.join("apt").display());
    }
    if !rpms.is_empty() {
        dnf::write(&out.join("dnf"), &rpms, &key)?;
        println!("{}", out.join("dnf").display());
    }
    println!("signed by {}", key.fingerprint());
    Ok(())
}

fn files(directory: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).with_context(|| format!("listing {}", directory.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|found| found == extension) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}
