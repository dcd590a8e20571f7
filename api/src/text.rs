//! Texts that have a form: parsed once at the edge, so that the rest of the program can't mix them up.
//!
//! Each kind is a newtype whose schema carries a `format`; [`check`] holds a text against a format. The
//! schema check uses the same function, so that every wrong text of a document is found at once.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;

/// Holds `text` against the form named `format`; the error says what to write instead. A format that is
/// not one of ours says nothing about the text.
pub fn check(format: &str, text: &str) -> Result<(), String> {
    match format {
        AbsolutePath::FORMAT => absolute_path(text),
        FileMode::FORMAT => file_mode(text),
        UnitName::FORMAT => unit_name(text),
        DropinName::FORMAT => dropin_name(text),
        PackageName::FORMAT => package_name(text),
        PackageVersion::FORMAT => package_version(text),
        RepositoryName::FORMAT => repository_name(text),
        AccountName::FORMAT => account_name(text),
        ModuleName::FORMAT => module_name(text),
        SysctlKey::FORMAT => sysctl_key(text),
        _ => Ok(()),
    }
}

macro_rules! text_types {
    ($($(#[doc = $doc:literal])+ $name:ident, $format:literal;)+) => {$(
        $(#[doc = $doc])+
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// The `format` in the schema.
            pub const FORMAT: &'static str = $format;

            /// The text itself.
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// A text of the program's own, whose form the tests hold against the rules.
            #[allow(dead_code)] // not every form is needed
            pub(crate) fn constant(text: &'static str) -> Self {
                debug_assert_eq!(check(Self::FORMAT, text), Ok(()));
                Self(text.to_owned())
            }
        }

        impl TryFrom<String> for $name {
            type Error = String;
            fn try_from(text: String) -> Result<Self, String> {
                check(Self::FORMAT, &text)?;
                Ok(Self(text))
            }
        }

        impl TryFrom<&str> for $name {
            type Error = String;
            fn try_from(text: &str) -> Result<Self, String> {
                Self::try_from(text.to_owned())
            }
        }

        impl From<$name> for String {
            fn from(value: $name) -> String {
                value.0
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }
            fn inline_schema() -> bool {
                true
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({"type": "string", "format": $format})
            }
        }
    )+};
}

text_types! {
    /// A path from the root, without `.`, `..`, empty steps or a slash at its end.
    AbsolutePath, "absolute-path";
    /// Permission bits in octal, as `chmod` takes them: `0644`.
    FileMode, "file-mode";
    /// The full name of a systemd unit, with its suffix: `kubelet.service`.
    UnitName, "unit-name";
    /// The file name of a unit drop-in: `10-nodelet.conf`.
    DropinName, "dropin-name";
    /// The name of a package: `containerd`.
    PackageName, "package-name";
    /// A version of a package, exact (`1.7.24-1`) or a glob (`1.7.*`).
    PackageVersion, "package-version";
    /// The name of a repository, which is its file name without the suffix: `kubernetes`.
    RepositoryName, "repository-name";
    /// The name of a user or a group, or its number.
    AccountName, "account-name";
    /// The name of a kernel module: `br_netfilter`.
    ModuleName, "module-name";
    /// The name of a kernel parameter, with dots: `net.ipv4.ip_forward`.
    SysctlKey, "sysctl-key";
}

impl FileMode {
    /// The bits.
    pub fn bits(&self) -> u32 {
        // The text was checked when it was made; 0 would be the safe side of a mistake here.
        u32::from_str_radix(&self.0, 8).unwrap_or(0)
    }
}

impl PackageVersion {
    /// True for a pattern such as `1.7.*`, which many versions may match.
    pub fn is_glob(&self) -> bool {
        self.0.contains(['*', '?'])
    }

    /// Whether the version `candidate` is what this one asks for.
    pub fn matches(&self, candidate: &str) -> bool {
        glob_matches(self.0.as_bytes(), candidate.as_bytes())
    }
}

fn glob_matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut last_star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                last_star = Some((p, t));
                p += 1;
            }
            Some(c) if *c == b'?' || *c == text[t] => {
                p += 1;
                t += 1;
            }
            _ => match last_star {
                // Let the last star take one more character, and try again behind it.
                Some((star, taken)) => {
                    last_star = Some((star, taken + 1));
                    p = star + 1;
                    t = taken + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == b'*')
}

impl UnitName {
    /// The part behind the last dot: `service`.
    pub fn suffix(&self) -> &str {
        self.0.rsplit('.').next().unwrap_or("")
    }
}

const UNIT_SUFFIXES: [&str; 11] =
    ["service", "socket", "target", "timer", "mount", "automount", "path", "slice", "swap", "scope", "device"];

fn absolute_path(text: &str) -> Result<(), String> {
    if !text.starts_with('/') {
        return Err(format!("`{text}` is not a path from the root: begin it with a slash, such as `/{text}`"));
    }
    if text == "/" || text.ends_with('/') {
        return Err(format!("`{text}` names a directory: name a file, without a slash at its end"));
    }
    if text.contains(['\0', '\n']) {
        return Err("the path holds a line break or a NUL character: remove it".into());
    }
    if text.split('/').skip(1).any(|step| step.is_empty() || step == "." || step == "..") {
        return Err(format!("`{text}` has an empty step, `.` or `..` in it: write the plain path"));
    }
    Ok(())
}

fn file_mode(text: &str) -> Result<(), String> {
    let octal = text.chars().all(|c| ('0'..='7').contains(&c));
    if (3..=4).contains(&text.len()) && octal {
        return Ok(());
    }
    Err(format!("`{text}` is not a file mode: write three or four octal digits, such as `0644`"))
}

fn unit_name(text: &str) -> Result<(), String> {
    let known = |suffix: &str| UNIT_SUFFIXES.contains(&suffix);
    match text.rsplit_once('.') {
        Some((stem, suffix)) if known(suffix) && !stem.is_empty() => {}
        _ => {
            return Err(format!(
                "`{text}` has no unit suffix: write the full name, such as `{text}.service` (suffixes: {})",
                UNIT_SUFFIXES.join(", ")
            ));
        }
    }
    let allowed = |c: char| c.is_ascii_alphanumeric() || ":-_.\\@".contains(c);
    if text.len() > 255 || !text.chars().all(allowed) || text.starts_with(['.', '-']) {
        return Err(format!("`{text}` is not a unit name: use letters, digits and `:-_.\\@`, at most 255 of them"));
    }
    Ok(())
}

fn dropin_name(text: &str) -> Result<(), String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.@".contains(c);
    if text.strip_suffix(".conf").is_some_and(|stem| !stem.is_empty())
        && !text.starts_with('.')
        && text.chars().all(allowed)
    {
        return Ok(());
    }
    Err(format!("`{text}` is not a drop-in name: systemd reads only `*.conf`, such as `10-nodelet.conf`"))
}

fn package_name(text: &str) -> Result<(), String> {
    let first = text.starts_with(|c: char| c.is_ascii_alphanumeric());
    if first && text.chars().all(|c| c.is_ascii_alphanumeric() || "+-._:".contains(c)) {
        return Ok(());
    }
    Err(format!("`{text}` is not a package name: use letters, digits and `+-._`, beginning with a letter or digit"))
}

fn package_version(text: &str) -> Result<(), String> {
    let first = text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '*' || c == '?');
    if first && text.chars().all(|c| c.is_ascii_alphanumeric() || ".+~^:_-*?".contains(c)) {
        return Ok(());
    }
    Err(format!(
        "`{text}` is not a package version: write it as the package manager shows it, such as `1.7.24-1`, or a glob such as `1.7.*`"
    ))
}

fn repository_name(text: &str) -> Result<(), String> {
    let first = text.starts_with(|c: char| c.is_ascii_alphanumeric());
    if first && text.len() <= 64 && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)) {
        return Ok(());
    }
    Err(format!(
        "`{text}` can't be a file name of the package manager: use at most 64 letters, digits and `-_.`, beginning with a letter or digit"
    ))
}

fn account_name(text: &str) -> Result<(), String> {
    let first = text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    if first && text.len() <= 32 && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)) {
        return Ok(());
    }
    Err(format!(
        "`{text}` is not the name of a user or group: write it as `/etc/passwd` has it, or its number in quotes"
    ))
}

fn module_name(text: &str) -> Result<(), String> {
    if !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-') {
        return Ok(());
    }
    Err(format!("`{text}` is not the name of a kernel module: write it as `lsmod` shows it, such as `br_netfilter`"))
}

fn sysctl_key(text: &str) -> Result<(), String> {
    let steps_full = text.split('.').all(|step| !step.is_empty());
    if steps_full
        && text.contains('.')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "._-/".contains(c))
        && !text.contains("..")
    {
        return Ok(());
    }
    Err(format!("`{text}` is not a kernel parameter: write it with dots, such as `net.ipv4.ip_forward`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms() {
        for (format, good, bad) in [
            ("absolute-path", "/etc/ä b", vec!["etc/x", "/", "/etc/", "/a//b", "/a/../b", ""]),
            ("file-mode", "0644", vec!["644x", "9", "0o644", "00644", "0648"]),
            ("unit-name", "foo@1.service", vec!["foo", ".service", "a b.service", "-x.service", "x.srv"]),
            ("dropin-name", "10-x.conf", vec!["10-x", ".conf", "a/b.conf"]),
            ("package-name", "libstdc++6", vec!["-y", "a b", ""]),
            ("package-version", "1:1.7.24~ds1-1+deb12u1", vec!["", "1 2", "-1", "1;2"]),
            ("repository-name", "kubernetes-1.35", vec!["../x", "", ".hidden"]),
            ("account-name", "systemd-network", vec!["", "a:b", "-x"]),
            ("module-name", "br_netfilter", vec!["", "../x"]),
            ("sysctl-key", "net.ipv4.ip_forward", vec!["", "net", "net..ipv4", "net ipv4"]),
        ] {
            assert_eq!(check(format, good), Ok(()), "{format}");
            for text in bad {
                assert!(check(format, text).is_err(), "{format} took {text:?}");
            }
        }
    }

    #[test]
    fn globs() {
        for (pattern, text, expected) in [
            ("1.7.*", "1.7.24-1", true),
            ("1.7.*", "1.71.2", false),
            ("1.7.?", "1.7.2", true),
            ("*-1", "1-1-1", true),
            ("*-1", "1-1-2", false),
            ("1.2", "1.2", true),
            ("1.2", "1.20", false),
            ("*", "", true),
        ] {
            assert_eq!(glob_matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
    }
}
