//! What differs from node to node in a text that is the same for all: `${node.name}` and its like.
//!
//! Only names that begin with `node.` are ours: `${HOME}` in a shell script stays as it is, and a text
//! without `${node.` is never changed. `$${node.name}` stands for a literal `${node.name}`.

/// The variables that a text may use, with what each stands for.
pub const VARIABLES: [(&str, &str); 6] = [
    ("node.name", "the node's name, as its Node object has it"),
    ("node.ip", "the node's first address: of the interface with the default route"),
    ("node.arch", "the processor architecture as Debian writes it: `amd64`, `arm64`"),
    ("node.os", "`ID` of `/etc/os-release`: `debian`, `fedora`"),
    ("node.osVersion", "`VERSION_ID` of `/etc/os-release`: `12`"),
    ("node.osCodename", "`VERSION_CODENAME` of `/etc/os-release`: `bookworm`"),
];

const OPEN: &str = "${node.";

/// Replaces every variable by what `value_of` says of it; the error names the first it doesn't know.
pub fn substitute(text: &str, mut value_of: impl FnMut(&str) -> Option<String>) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(OPEN) {
        let (before, from) = rest.split_at(at);
        let Some(end) = from.find('}') else { break };
        let (variable, after) = from.split_at(end + 1);
        if let Some(literal) = before.strip_suffix('$') {
            out.push_str(literal);
            out.push_str(variable);
        } else {
            out.push_str(before);
            let name = &variable[2..end];
            out.push_str(&value_of(name).ok_or_else(|| unknown(name))?);
        }
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

/// Whether a text uses only variables that exist.
pub fn check(text: &str) -> Result<(), String> {
    let exists = |name: &str| VARIABLES.iter().any(|(known, _)| *known == name).then(String::new);
    substitute(text, exists).map(|_| ())
}

/// The same for a text that will stand among others: a variable without an end would swallow what follows.
pub fn check_part(text: &str) -> Result<(), String> {
    check(text)?;
    match text.rfind(OPEN) {
        Some(at) if !text[at..].contains('}') => {
            Err("a variable begins with `${node.` and has no end: close it with `}`".to_owned())
        }
        _ => Ok(()),
    }
}

fn unknown(name: &str) -> String {
    let names = VARIABLES.map(|(known, _)| format!("${{{known}}}")).join(", ");
    format!("there is no variable `${{{name}}}`: use one of {names}, or write `$${{{name}}}` for the text itself")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_names_are_replaced() {
        let value = |name: &str| (name == "node.name").then(|| "n1".to_owned());
        let table = [
            ("a ${node.name} b", Ok("a n1 b".to_owned())),
            ("${HOME} $$ $${x}", Ok("${HOME} $$ $${x}".to_owned())),
            ("$${node.name}", Ok("${node.name}".to_owned())),
            ("${node.name", Ok("${node.name".to_owned())),
            ("${node.nmae}", Err(unknown("node.nmae"))),
        ];
        for (text, expected) in table {
            assert_eq!(substitute(text, value), expected, "{text}");
        }
    }
}
