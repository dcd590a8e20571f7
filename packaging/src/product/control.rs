//! `debian/control`: the source paragraph and a package's binary paragraph.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};

/// Both paragraphs, by field.
pub(super) struct Control {
    source: BTreeMap<String, String>,
    binary: BTreeMap<String, String>,
}

impl Control {
    /// The paragraphs that are about a package.
    pub(super) fn read(text: &str, package: &str) -> Result<Self> {
        let mut paragraphs = text.split("\n\n").filter(|part| !part.trim().is_empty()).map(paragraph);
        let source = paragraphs.next().context("no source paragraph")??;
        let binaries = paragraphs.collect::<Result<Vec<_>>>()?;
        let mut named = binaries.into_iter().filter(|one| one.get("Package").is_some_and(|name| name == package));
        let binary = named.next().with_context(|| format!("no paragraph of the package {package}"))?;
        ensure!(named.next().is_none(), "more than one paragraph of the package {package}");
        Ok(Self { source, binary })
    }

    pub(super) fn source(&self, field: &str) -> Result<String> {
        self.source.get(field).cloned().with_context(|| format!("the source paragraph has no {field}"))
    }

    /// The first line of the description.
    pub(super) fn summary(&self) -> Result<String> {
        Ok(self.binary("Description")?.lines().next().unwrap_or_default().to_owned())
    }

    /// The other lines, with empty ones for the lone dots.
    pub(super) fn description(&self) -> Result<String> {
        let lines = self.binary("Description")?.lines().skip(1);
        Ok(lines.map(|line| if line == "." { "" } else { line }).collect::<Vec<_>>().join("\n"))
    }

    /// The relations in a field, with `${shlibs:Depends}` replaced by what the program needs. debhelper's other
    /// variables stand for nothing here: no helper adds anything.
    pub(super) fn relations(&self, field: &str, libraries: &[String]) -> Vec<String> {
        let Some(value) = self.binary.get(field) else { return Vec::new() };
        let mut relations = Vec::new();
        for relation in value.split(',').map(|part| part.split_whitespace().collect::<Vec<_>>().join(" ")) {
            match relation.as_str() {
                "${shlibs:Depends}" => relations.extend_from_slice(libraries),
                "${misc:Depends}" | "${misc:Pre-Depends}" | "" => {}
                _ => relations.push(relation),
            }
        }
        relations
    }

    fn binary(&self, field: &str) -> Result<&str> {
        self.binary.get(field).map(String::as_str).with_context(|| format!("the binary paragraph has no {field}"))
    }
}

/// Fields with their continuation lines, which begin with a space.
fn paragraph(text: &str) -> Result<BTreeMap<String, String>> {
    let mut fields: BTreeMap<String, String> = BTreeMap::new();
    let mut current: Option<String> = None;
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        if let Some(rest) = line.strip_prefix(' ') {
            let name = current.as_ref().with_context(|| format!("{line:?} continues no field"))?;
            let value = fields.entry(name.clone()).or_default();
            value.push('\n');
            value.push_str(rest.trim_end());
        } else if !line.trim().is_empty() {
            let (name, value) = line.split_once(':').with_context(|| format!("{line:?} is no `Field: value`"))?;
            fields.insert(name.to_owned(), value.trim().to_owned());
            current = Some(name.to_owned());
        }
    }
    Ok(fields)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn fields_and_substitutions() {
        let text = "Source: x\nSection: admin\n\nPackage: y\nDescription: other\n\nPackage: x\nDepends: a, ${shlibs:Depends},\n ${misc:Depends}, b (>= 2)\nDescription: short\n One.\n .\n Two.\n";
        let control = Control::read(text, "x").unwrap();
        assert!(Control::read(text, "z").is_err());
        assert_eq!(control.source("Section").unwrap(), "admin");
        assert_eq!(control.relations("Depends", &["libc6".into()]), ["a", "libc6", "b (>= 2)"]);
        assert_eq!(control.summary().unwrap(), "short");
        assert_eq!(control.description().unwrap(), "One.\n\nTwo.");
        assert!(control.source("Homepage").unwrap_err().to_string().contains("Homepage"));
    }
}
