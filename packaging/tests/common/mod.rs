//! What the tests of the packaging tool share.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use packaging::product::{Format, Product, Sources};

/// The repository that is tested.
pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// The program to put into packages: nodelet itself if `NODELET_BINARY` names it, any other small one otherwise.
pub(crate) fn program() -> PathBuf {
    program_of(Product::Nodelet)
}

/// The same for any package; `KUBECTL_NODES_BINARY` names kubectl-nodes.
pub(crate) fn program_of(product: Product) -> PathBuf {
    let variable = match product {
        Product::Nodelet => "NODELET_BINARY",
        Product::KubectlNodes => "KUBECTL_NODES_BINARY",
    };
    std::env::var_os(variable).map_or_else(|| "/usr/bin/true".into(), PathBuf::from)
}

/// A copy of what the packages are made of, with freshly generated files.
pub(crate) fn checkout(directory: &Path) -> Sources {
    let root = directory.join("checkout");
    for part in [
        "debian",
        "rpm",
        "systemd",
        "packaging/files.toml",
        "packaging/files-kubectl-nodes.toml",
        "packaging/kubectl_complete-nodes",
        "config/state.example.toml",
    ] {
        let target = root.join(part);
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        run(Command::new("cp").arg("-r").arg(repository().join(part)).arg(&target));
    }
    generate(&root);
    Sources::new(root)
}

#[cfg(feature = "generate")]
fn generate(root: &Path) {
    packaging::generate::write(root).unwrap();
}

/// Stand-ins where nodelet isn't compiled in.
#[cfg(not(feature = "generate"))]
fn generate(root: &Path) {
    for (path, content) in [
        ("config/nodelet.toml", "# settings\n"),
        ("docs/man/nodelet.8", ".TH nodelet 8\n.SH NAME\nnodelet \\- keeps a node as declared\n"),
        ("docs/reference/state.md", "# state\n"),
        ("docs/completions/nodelet.bash", "# bash\n"),
        ("docs/completions/nodelet.fish", "# fish\n"),
        ("docs/completions/_nodelet", "#compdef nodelet\n"),
        ("docs/man/kubectl-nodes.1", ".TH kubectl-nodes 1\n.SH NAME\nkubectl-nodes \\- shows nodes\n"),
        ("docs/completions/kubectl-nodes.bash", "# bash\n"),
        ("docs/completions/kubectl-nodes.fish", "# fish\n"),
        ("docs/completions/_kubectl-nodes", "#compdef kubectl-nodes\n"),
    ] {
        fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
        fs::write(root.join(path), content).unwrap();
    }
}

/// nodelet's package in one format.
pub(crate) fn build(directory: &Path, format: Format) -> PathBuf {
    build_of(Product::Nodelet, directory, format)
}

/// Any of our packages in one format.
pub(crate) fn build_of(product: Product, directory: &Path, format: Format) -> PathBuf {
    let sources = checkout(directory).of(product);
    let version = sources.version(None).unwrap();
    sources.build(&program_of(product), &version, &[format], &directory.join("packages")).unwrap().remove(0)
}

/// What lintian finds in a package: nothing, and no override that is no longer needed.
pub(crate) fn lintian(package: &Path) {
    let output = attempt(
        Command::new("lintian")
            .args(["--no-cfg", "--allow-root", "--tag-display-limit=0", "--fail-on=error,warning"])
            .arg(package),
    );
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "lintian:\n{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(!text.contains("unused-override"), "an override is no longer needed:\n{text}");
}

/// Runs a command that must succeed, and returns what it printed.
pub(crate) fn run(command: &mut Command) -> String {
    let output = attempt(command);
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs a command.
pub(crate) fn attempt(command: &mut Command) -> Output {
    command.env("LC_ALL", "C.UTF-8").output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}
