//! The user data of `config/cloud-init`, filled in as a user would, and machines that boot with it.

use std::fs;

use anyhow::{Context, Result, bail, ensure};

use crate::{NodeOptions, paths};

/// Where cloud-init's data source `NoCloud` looks for what a cloud would answer.
const SEED: &str = "/var/lib/cloud/seed/nocloud";
/// The line of the state file that says where more goes, with its indentation.
const MORE: &str = "      # Add here what else the node needs, for example [kubelet.config].\n";

/// User data in which names between at signs stand for values.
#[derive(Debug, Clone)]
pub struct UserData {
    file: String,
    text: String,
}

impl UserData {
    /// The very file that users get.
    pub fn read(file: &str) -> Result<Self> {
        let path = paths::checkout().join("config/cloud-init").join(file);
        let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        Ok(Self { file: file.to_owned(), text })
    }

    /// Puts a value in the place of `@NAME@`.
    pub fn fill(mut self, name: &str, value: &str) -> Result<Self> {
        let place = format!("@{name}@");
        ensure!(self.text.contains(&place), "{} has no place for {name}", self.file);
        self.text = self.text.replace(&place, value);
        Ok(self)
    }

    /// The same for a file that is given in base64.
    pub fn fill_file(self, name: &str, content: &str) -> Result<Self> {
        use base64::Engine as _;
        self.fill(name, &base64::engine::general_purpose::STANDARD.encode(content))
    }

    /// Adds to the state file, where its last comment says so.
    pub fn add_to_state(mut self, toml: &str) -> Result<Self> {
        ensure!(self.text.contains(MORE), "{} does not say where more of the state goes", self.file);
        let indented: String = toml
            .lines()
            .map(|line| if line.is_empty() { "\n".to_owned() } else { format!("      {line}\n") })
            .collect();
        self.text = self.text.replace(MORE, &indented);
        Ok(self)
    }

    /// What the machine is handed; nothing may be left to fill in.
    pub fn finish(self) -> Result<String> {
        let is_name = |word: &&str| {
            !word.is_empty() && word.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
        };
        // Every second piece stands between two at signs of its line.
        match self.text.lines().flat_map(|line| line.split('@').skip(1).step_by(2)).find(is_name) {
            Some(name) => bail!("{name} of {} is not filled in", self.file),
            None => Ok(self.text),
        }
    }
}

/// A machine that finds this user data at its first boot.
pub fn seeded(options: NodeOptions, user_data: &str) -> NodeOptions {
    let meta_data = format!("instance-id: {0}\nlocal-hostname: {0}\n", options.name);
    options.file(format!("{SEED}/meta-data"), 0o644, meta_data).file(format!("{SEED}/user-data"), 0o600, user_data)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_forgotten_and_nothing_invented() {
        let data = || UserData::read("debian.yaml").unwrap();
        assert!(data().finish().unwrap_err().to_string().contains("is not filled in"));
        assert!(data().fill("NONSENSE", "x").unwrap_err().to_string().contains("no place for NONSENSE"));
        let more = data().add_to_state("[kubelet.config]\nmaxPods = 5\n").unwrap();
        assert!(more.text.contains("\n      maxPods = 5\n"), "{}", more.text);
    }

    #[test]
    fn every_value_is_explained() {
        let readme = fs::read_to_string(paths::checkout().join("config/cloud-init/README.md")).unwrap();
        for file in ["debian.yaml", "rpm.yaml"] {
            let text = UserData::read(file).unwrap().text;
            for name in text.lines().flat_map(|line| line.split('@').skip(1).step_by(2)) {
                assert!(readme.contains(&format!("`{name}`")), "README.md does not explain {name} of {file}");
            }
        }
    }
}
