//! Files that come from the types and are committed where users read them. CI fails when one is stale.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use clap::Command;
use clap_complete::aot::{Bash, Fish, Generator, Zsh};

/// A path below the repository's root, and what makes it. A path that ends in `/` is a directory of generated files.
type Line = (&'static str, fn() -> Result<Output>);

/// One line per generated file or directory.
const TABLE: &[Line] = &[
    ("config/nodelet.toml", || Ok(nodelet::settings::default_file().into())),
    ("config/crd/", crds),
    ("docs/completions/", || Ok(completions())),
    ("docs/man/", man_pages),
    ("docs/reference/state.md", || Ok(nodelet_api::reference::markdown().into())),
];

/// A program that pages and completions are generated for.
struct Program {
    name: &'static str,
    command: fn() -> Command,
    /// The section of its manual pages, and what that section is about.
    section: (&'static str, &'static str),
    /// What the definition of the command line can't say, on the page of the program itself.
    more: &'static str,
    /// What stands at the end of each page.
    see_also: &'static str,
}

const PROGRAMS: [Program; 2] = [
    Program {
        name: "nodelet",
        command: nodelet::cli::command,
        section: ("8", "System administration"),
        more: FILES,
        see_also: SEE_ALSO,
    },
    Program {
        name: node_controller::kubectl::NAME,
        command: node_controller::kubectl::command,
        section: ("1", "User commands"),
        more: ENVIRONMENT,
        see_also: SEE_KUBECTL,
    },
];

/// What a line of the table makes.
enum Output {
    File(String),
    Directory(BTreeMap<String, Vec<u8>>),
}

impl From<String> for Output {
    fn from(text: String) -> Self {
        Self::File(text)
    }
}

/// The custom resource definitions, and the list of them for kustomize.
fn crds() -> Result<Output> {
    let mut files = BTreeMap::new();
    let mut names = Vec::new();
    for (name, definition) in nodelet_api::crd::definitions() {
        let text = serde_saphyr::to_string(&definition).with_context(|| format!("writing {name}"))?;
        files.insert(format!("{name}.yaml"), format!("{GENERATED}{text}").into_bytes());
        names.push(format!("  - {name}.yaml\n"));
    }
    let list = format!("{GENERATED}resources:\n{}", names.concat());
    files.insert("kustomization.yaml".into(), list.into_bytes());
    Ok(Output::Directory(files))
}

const GENERATED: &str = "# Generated from the types by `make generate`.\n";

/// Writes what is stale below `root`, and returns the paths that it changed.
pub fn write(root: &Path) -> Result<Vec<String>> {
    let stale = stale(root)?;
    for (path, content) in &stale {
        let target = root.join(path);
        match content {
            Some(content) => {
                let parent = target.parent().with_context(|| format!("{} has no parent", target.display()))?;
                fs::create_dir_all(parent)
                    .and_then(|()| fs::write(&target, content))
                    .with_context(|| format!("writing {}", target.display()))?;
            }
            None => fs::remove_file(&target).with_context(|| format!("removing {}", target.display()))?,
        }
    }
    Ok(stale.into_keys().collect())
}

/// Fails with the list of files below `root` that [`write`] would change.
pub fn check(root: &Path) -> Result<()> {
    let stale: Vec<_> = stale(root)?.into_keys().collect();
    if !stale.is_empty() {
        bail!("stale generated files; run `cargo run -p packaging -- generate`:\n  {}", stale.join("\n  "));
    }
    Ok(())
}

/// What has to change: the new content, or nothing for a file that no longer is generated.
fn stale(root: &Path) -> Result<BTreeMap<String, Option<Vec<u8>>>> {
    let mut stale = BTreeMap::new();
    for (path, make) in TABLE {
        let files = match make().with_context(|| format!("generating {path}"))? {
            Output::File(text) => BTreeMap::from([((*path).to_owned(), text.into_bytes())]),
            Output::Directory(files) => {
                let files: BTreeMap<_, _> =
                    files.into_iter().map(|(name, content)| (format!("{path}{name}"), content)).collect();
                let extra = present(root, path)?.into_iter().filter(|found| !files.contains_key(found));
                stale.extend(extra.map(|found| (found, None)));
                files
            }
        };
        for (path, content) in files {
            if fs::read(root.join(&path)).ok().as_ref() != Some(&content) {
                stale.insert(path, Some(content));
            }
        }
    }
    Ok(stale)
}

/// The files in a generated directory, which may not be there yet.
fn present(root: &Path, directory: &str) -> Result<BTreeSet<String>> {
    let path = root.join(directory);
    if !path.exists() {
        return Ok(BTreeSet::new());
    }
    fs::read_dir(&path)
        .and_then(|entries| {
            entries.map(|entry| Ok(format!("{directory}{}", entry?.file_name().to_string_lossy()))).collect()
        })
        .with_context(|| format!("listing {}", path.display()))
}

fn completions() -> Output {
    let mut files = BTreeMap::new();
    for program in &PROGRAMS {
        for shell in [&Bash as &dyn Shell, &Fish, &Zsh] {
            let (name, content) = shell.script(program);
            files.insert(name, content);
        }
    }
    Output::Directory(files)
}

/// `Generator` by itself can't be put into a list: its functions are generic.
trait Shell {
    fn script(&self, program: &Program) -> (String, Vec<u8>);
}

impl<G: Generator + Copy> Shell for G {
    fn script(&self, program: &Program) -> (String, Vec<u8>) {
        let mut content = Vec::new();
        clap_complete::generate(*self, &mut (program.command)(), program.name, &mut content);
        let content = node_controller::kubectl::mended(&String::from_utf8_lossy(&content));
        (self.file_name(program.name), content.into_bytes())
    }
}

/// What the definition of the command line can't say.
const FILES: &str = "\
.SH FILES
.TP
\\fB/etc/nodelet/nodelet.toml\\fR, \\fB/{usr/lib,run,etc}/nodelet/nodelet.toml.d/*.toml\\fR
Settings of nodelet itself, and drop\\-ins.
.TP
\\fB/etc/nodelet/state.toml\\fR
The desired state, as long as no cluster says otherwise. An example is in
\\fI/usr/share/doc/nodelet/examples/state.toml\\fR, all fields in \\fI/usr/share/doc/nodelet/state.md\\fR.
.TP
\\fB/etc/nodelet/keys/\\fR
Public keys of package repositories.
.TP
\\fB/var/lib/nodelet/\\fR, \\fB/var/cache/nodelet/\\fR
What nodelet remembers, and what it has downloaded.
";

const SEE_ALSO: &str = "\
.SH SEE ALSO
.BR nodelet (8),
.BR systemctl (1),
.BR journalctl (1)
";

const ENVIRONMENT: &str = "\
.SH ENVIRONMENT
.TP
\\fBKUBECONFIG\\fR
The kubeconfig files to use, as for
.BR kubectl (1).
.TP
\\fBNO_COLOR\\fR
Set to anything, it turns colours off.
.SH EXIT STATUS
0 when it is done; 1 when it failed, or when
.B wait
saw a rollout fail or its time was over; 2 when the command line is wrong.
";

const SEE_KUBECTL: &str = "\
.SH SEE ALSO
.BR kubectl\\-nodes (1),
.BR kubectl (1),
.BR nodelet (8)
";

/// A page for each program and one for each of its commands.
fn man_pages() -> Result<Output> {
    let mut files = BTreeMap::new();
    for program in &PROGRAMS {
        // `nodelet help` repeats what the pages say.
        let mut command = (program.command)().disable_help_subcommand(true);
        command.build();
        add_pages(program, &command, &mut files)?;
    }
    Ok(Output::Directory(files))
}

fn add_pages(program: &Program, command: &Command, files: &mut BTreeMap<String, Vec<u8>>) -> Result<()> {
    // No date: it would make the page stale every day.
    let (section, about) = program.section;
    let page = clap_mangen::Man::new(command.clone())
        .section(section)
        .source(format!("{} {}", program.name, env!("CARGO_PKG_VERSION")))
        .manual(about);
    let mut content = Vec::new();
    page.render(&mut content).with_context(|| format!("rendering the page of {}", command.get_name()))?;
    if command.get_name() == program.name {
        content.extend_from_slice(program.more.as_bytes());
    }
    content.extend_from_slice(program.see_also.as_bytes());
    files.insert(page.get_filename(), content);
    for child in command.get_subcommands().filter(|child| !child.is_hide_set()) {
        add_pages(program, child, files)?;
    }
    Ok(())
}
