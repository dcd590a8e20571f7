//! What is wrong with an input, and where.

use std::fmt;

/// One step of a [`FieldPath`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Segment {
    Key(String),
    Index(usize),
}

/// The way to a field from the top of a document, written as `files[2].path`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FieldPath(Vec<Segment>);

impl FieldPath {
    /// The whole document.
    pub fn root() -> Self {
        Self::default()
    }

    /// The field `name` below this one.
    #[must_use]
    pub fn key(&self, name: impl Into<String>) -> Self {
        let mut segments = self.0.clone();
        segments.push(Segment::Key(name.into()));
        Self(segments)
    }

    /// The entry at `index` of the list at this path.
    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        let mut segments = self.0.clone();
        segments.push(Segment::Index(index));
        Self(segments)
    }

    /// The path without its last step; `None` at the top.
    pub fn parent(&self) -> Option<Self> {
        let (_, rest) = self.0.split_last()?;
        Some(Self(rest.to_vec()))
    }

    /// True for the whole document.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, segment) in self.0.iter().enumerate() {
            match segment {
                Segment::Index(index) => write!(f, "[{index}]")?,
                Segment::Key(key) => {
                    if position > 0 {
                        f.write_str(".")?;
                    }
                    let plain = key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
                    if plain && !key.is_empty() {
                        f.write_str(key)?;
                    } else {
                        write!(f, "{key:?}")?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// A place in a text, counted from 1 as editors do; columns count characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
}

impl Position {
    /// The place of the byte at `offset` in `text`.
    pub fn of(text: &str, offset: usize) -> Self {
        let before = text.get(..offset.min(text.len())).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Self { line: before.matches('\n').count() + 1, column: before[line_start..].chars().count() + 1 }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// One thing that is wrong: where, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The field.
    pub path: FieldPath,
    /// A sentence that says what is wrong and what to write instead.
    pub message: String,
    /// Where in the text, when the input was a text.
    pub position: Option<Position>,
}

impl Problem {
    /// A problem whose place in a text is not known (yet).
    pub fn new(path: FieldPath, message: impl Into<String>) -> Self {
        Self { path, message: message.into(), position: None }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(position) = self.position {
            write!(f, "{position}: ")?;
        }
        if !self.path.is_root() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)
    }
}

/// Everything that is wrong with one input, in the order of the text where that is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems(Vec<Problem>);

impl Problems {
    /// Notes one more.
    pub fn add(&mut self, path: FieldPath, message: impl Into<String>) {
        self.0.push(Problem::new(path, message));
    }

    /// Notes one that was made elsewhere.
    pub fn push(&mut self, problem: Problem) {
        self.0.push(problem);
    }

    /// True when nothing is wrong.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Each of them.
    pub fn iter(&self) -> std::slice::Iter<'_, Problem> {
        self.0.iter()
    }

    /// Gives each its place in the text, and sorts by it.
    #[must_use]
    pub fn located(mut self, locate: impl Fn(&FieldPath) -> Option<Position>) -> Self {
        for problem in &mut self.0 {
            problem.position = problem.position.or_else(|| locate(&problem.path));
        }
        self.0.sort_by(|a, b| (a.position, &a.path).cmp(&(b.position, &b.path)));
        self
    }

    /// `Ok(value)` when nothing is wrong.
    pub fn into_result<T>(self, value: T) -> Result<T, Self> {
        if self.is_empty() { Ok(value) } else { Err(self) }
    }
}

impl IntoIterator for Problems {
    type Item = Problem;
    type IntoIter = std::vec::IntoIter<Problem>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a> IntoIterator for &'a Problems {
    type Item = &'a Problem;
    type IntoIter = std::slice::Iter<'a, Problem>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_read_as_people_write_them() {
        let path = FieldPath::root().key("kernel").key("sysctl").key("net.ipv4.ip_forward");
        assert_eq!(path.to_string(), r#"kernel.sysctl."net.ipv4.ip_forward""#);
        assert_eq!(FieldPath::root().key("files").index(2).key("path").to_string(), "files[2].path");
        assert_eq!(path.parent().map(|p| p.to_string()), Some("kernel.sysctl".into()));
    }

    #[test]
    fn positions_count_characters_from_one() {
        assert_eq!(Position::of("a\nbü c", 2), Position { line: 2, column: 1 });
        assert_eq!(Position::of("a\nbü c", 6), Position { line: 2, column: 4 });
        assert_eq!(Position::of("", 9), Position { line: 1, column: 1 });
    }
}
