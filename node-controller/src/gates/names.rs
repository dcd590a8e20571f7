//! Names that become parts of addresses of the API server. The client puts them there as they are, so one with a `/` would be
//! another address, with the controller's own rights.

use anyhow::ensure;

/// Refuses what could be more than one part of an address. `what` is the field that it is in.
pub(super) fn check(what: &str, name: &str) -> anyhow::Result<()> {
    let odd = |letter: char| "/?#%".contains(letter) || letter.is_whitespace() || letter.is_control();
    let plain = !name.is_empty() && name != "." && !name.contains("..") && !name.contains(odd);
    ensure!(plain, "`{what}` is no name: write it without /, ?, #, %, spaces and ..");
    Ok(())
}

/// Refuses what no namespace is called.
pub(super) fn check_namespace(name: &str) -> anyhow::Result<()> {
    let plain = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
    let is_label = !name.is_empty() && name.len() <= 63 && name.chars().all(plain);
    ensure!(
        is_label && !name.starts_with('-') && !name.ends_with('-'),
        "`namespace` is no name: write small letters, digits and -"
    );
    Ok(())
}

/// The group, empty for the oldest kinds, and the version: `v1`, or `apps/v1`.
pub(super) fn group_and_version(text: &str) -> anyhow::Result<(&str, &str)> {
    let (group, version) = match text.split_once('/') {
        Some((group, version)) => (Some(group), version),
        None => (None, text),
    };
    let plain = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
    let is_version = version.starts_with('v') && version.chars().all(plain);
    let is_group = |group: &str| {
        !group.is_empty() && group.split('.').all(|part| part.chars().all(|c| plain(c) || c == '-') && !part.is_empty())
    };
    ensure!(is_version && group.is_none_or(is_group), "`apiVersion` must be such as v1 or apps/v1");
    Ok((group.unwrap_or_default(), version))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_one_part_of_an_address() {
        for name in ["web", "Web-1", "system:node", "a.b", "kube_x"] {
            assert!(check("name", name).is_ok(), "{name}");
        }
        for name in ["", ".", "..", "a/b", "a?b", "a#b", "a%2fb", "a b", "a\nb", "a\tb", "a..b", "x/secrets/y?z="] {
            assert!(check("name", name).is_err(), "{name}");
        }
        for name in ["shop", "a-1", "0"] {
            assert!(check_namespace(name).is_ok(), "{name}");
        }
        for name in ["", "-a", "a-", "A", "a.b", "a/b", "nodelet-system/secrets/x?y=", &"a".repeat(64)] {
            assert!(check_namespace(name).is_err(), "{name}");
        }
    }

    #[test]
    fn versions_have_a_group_or_none() {
        for (text, expected) in
            [("v1", ("", "v1")), ("apps/v1", ("apps", "v1")), ("a.b-c/v1beta2", ("a.b-c", "v1beta2"))]
        {
            assert_eq!(group_and_version(text).ok(), Some(expected), "{text}");
        }
        for text in ["/v1", "", "1", "apps/", "apps/1", "a/b/v1", "a/v1/b", "../api/v1", "apps/v1?x", "a./v1", "a b/v1"]
        {
            assert!(group_and_version(text).is_err(), "{text}");
        }
    }
}
