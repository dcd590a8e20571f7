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

/// Edits (insert, remove, replace, swap of neighbours) from one word to the other.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
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
        assert_eq!(nearest("levle", ["level"]), Some("level"));
    }
}
