//! dpkg's status file, read directly: a process per package would cost seconds.

use super::packages::{Installed, InstalledPackages};

/// The packages of which anything is there beside configuration files, however far their installation got: one that
/// an upgrade has only unpacked yet is no less there.
pub fn parse_status(text: &str) -> InstalledPackages {
    let gone = |state: &str| matches!(state, "not-installed" | "config-files");
    stanzas(text).filter(|(state, ..)| !gone(state)).map(|(_, name, installed)| (name, installed)).collect()
}

/// Takes up what apt notes of packages in its file of extended states: which came only because others need them.
pub fn note_automatic(installed: &mut InstalledPackages, extended_states: &str) {
    for stanza in extended_states.split("\n\n").filter(|stanza| stanza.contains("Auto-Installed: 1")) {
        let name = stanza.lines().find_map(|line| line.strip_prefix("Package: "));
        if let Some(package) = name.and_then(|name| installed.get_mut(name.trim())) {
            package.automatic = true;
        }
    }
}

/// Whether a package was left half-way.
pub fn has_unfinished(text: &str) -> bool {
    let half = ["unpacked", "half-configured", "half-installed", "triggers-pending", "triggers-awaited"];
    text.lines()
        .filter_map(|line| line.strip_prefix("Status: "))
        .any(|status| half.iter().any(|word| status.ends_with(word)))
}

fn stanzas(text: &str) -> impl Iterator<Item = (&str, String, Installed)> {
    text.split("\n\n").filter_map(stanza)
}

fn stanza(text: &str) -> Option<(&str, String, Installed)> {
    let (mut name, mut version, mut status) = (None, None, None);
    // A status file has a hundred lines that don't matter for each that does.
    for line in text.split('\n') {
        let field = match line.as_bytes().first() {
            Some(b'P') => line.strip_prefix("Package: ").map(|value| (&mut name, value)),
            Some(b'V') => line.strip_prefix("Version: ").map(|value| (&mut version, value)),
            Some(b'S') => line.strip_prefix("Status: ").map(|value| (&mut status, value)),
            _ => None,
        };
        if let Some((field, value)) = field {
            *field = Some(value);
        }
    }
    let mut words = status?.split(' ');
    let (want, _, state) = (words.next()?, words.next()?, words.next()?);
    let complete = state == "installed";
    let installed = Installed { version: version?.trim().to_owned(), held: want == "hold", complete, automatic: false };
    Some((state, name?.trim().to_owned(), installed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_half_there_is_there() {
        let text = "Package: a\nStatus: install ok installed\nVersion: 1:2.0-1\nDescription: x\n y: z\n\n\
                    Package: b\nStatus: hold ok installed\nVersion: 3\n\n\
                    Package: c\nStatus: deinstall ok config-files\nVersion: 1\n\n\
                    Package: d\nStatus: install ok half-configured\nVersion: 1\n";
        let mut installed = parse_status(text);
        assert_eq!(installed.keys().collect::<Vec<_>>(), ["a", "b", "d"]);
        let a = Installed { version: "1:2.0-1".into(), held: false, complete: true, automatic: false };
        assert_eq!(installed["a"], a);
        let extended = "Package: a\nArchitecture: amd64\nAuto-Installed: 1\n\n\
                        Package: b\nArchitecture: amd64\nAuto-Installed: 0\n\n\
                        Package: gone\nArchitecture: amd64\nAuto-Installed: 1\n";
        note_automatic(&mut installed, extended);
        assert!(installed["a"].automatic && !installed["b"].automatic && installed.len() == 3);
        assert!(installed["b"].held);
        assert!(installed["b"].complete && !installed["d"].complete);
    }
}
