//! "Did you mean …?"

/// The candidate nearest to `word`, when one is near enough to be a slip of the keyboard.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let folded = fold(word);
    candidates
        .into_iter()
        .map(|candidate| (distance(&folded, &fold(candidate)), candidate))
        // A third of the letters may differ; one always may.
        .filter(|(distance, candidate)| *distance <= (candidate.chars().count() / 3).max(1))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// `allow_downgrade`, `allow-downgrade` and `allowDowngrade` are the same word to a person.
fn fold(word: &str) -> Vec<char> {
    word.chars().filter(|c| *c != '_' && *c != '-').flat_map(char::to_lowercase).collect()
}

/// Edits (insert, remove, replace) from one word to the other.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_slips_and_other_spellings() {
        let fields = ["version", "allowDowngrade", "hold", "name"];
        assert_eq!(nearest("verison", fields), Some("version"));
        assert_eq!(nearest("allow_downgrade", fields), Some("allowDowngrade"));
        assert_eq!(nearest("colour", fields), None);
    }
}
