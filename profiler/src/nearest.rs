//! The nearest valid word to a wrong one, for messages, by optimal string alignment: insertions,
//! deletions, substitutions and swaps of neighbours, the usual slips, count 1, case-insensitively.

/// Longest compared word, in characters: the cost is quadratic, and longer guesses are worthless.
const WORD_CHARS_MAX: usize = 64;

/// The candidate nearest to `word`, if it is near enough to be intended: at most a third of the
/// longer word wrong. Of equally near ones the first.
/// ```
/// assert_eq!(profiler::nearest::nearest("polcy", ["gpu", "policy", "socket"]), Some("policy"));
/// assert_eq!(profiler::nearest::nearest("banana", ["gpu", "policy", "socket"]), None);
/// ```
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let length = word.chars().count();
    let mut best = None;
    for candidate in candidates {
        let longer = length.max(candidate.chars().count());
        let Some(distance) = distance(word, candidate) else {
            continue;
        };
        let near_enough = distance <= (longer / 3).max(1) && distance < longer;
        if near_enough && best.is_none_or(|(least, _)| distance < least) {
            best = Some((distance, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// The distance of `a` and `b`, ignoring case; `None` if one is longer than [`WORD_CHARS_MAX`].
fn distance(a: &str, b: &str) -> Option<usize> {
    let a = folded(a)?;
    let b = folded(b)?;
    // Three rows of the usual table: the one being filled and the two above it.
    let mut above_above = vec![0; b.len() + 1];
    let mut above: Vec<usize> = (0..=b.len()).collect();
    let mut row = vec![0; b.len() + 1];
    for i in 1..=a.len() {
        row[0] = i;
        for j in 1..=b.len() {
            let substitution = above[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = substitution.min(above[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(above_above[j - 2] + 1);
            }
        }
        std::mem::swap(&mut above_above, &mut above);
        std::mem::swap(&mut above, &mut row);
    }
    Some(above[b.len()])
}

fn folded(word: &str) -> Option<Vec<char>> {
    // One character may fold into several, so the bound is checked after folding.
    let chars: Vec<char> = word
        .chars()
        .flat_map(char::to_lowercase)
        .take(WORD_CHARS_MAX + 1)
        .collect();
    (chars.len() <= WORD_CHARS_MAX).then_some(chars)
}

#[cfg(test)]
mod tests {
    use super::{distance, nearest};

    #[test]
    fn distance_counts_each_slip_once() {
        for (a, b, expected) in [
            ("", "", 0),
            ("socket", "socket", 0),
            ("Socket", "socket", 0),
            ("sockt", "socket", 1),
            ("sockeet", "socket", 1),
            ("sokcet", "socket", 1),
            ("sacket", "socket", 1),
            ("", "gpu", 3),
            ("kitten", "sitting", 3),
            ("größe", "grösse", 2),
        ] {
            assert_eq!(distance(a, b), Some(expected), "{a} {b}");
            assert_eq!(distance(b, a), Some(expected), "{b} {a}");
        }
    }

    #[test]
    fn only_near_words_are_suggested_and_the_nearest_wins() {
        let keys = ["grid", "block", "block_ns", "shared_bytes", "registers"];
        assert_eq!(nearest("gird", keys), Some("grid"));
        assert_eq!(nearest("blocks_ns", keys), Some("block_ns"));
        assert_eq!(nearest("sharedbytes", keys), Some("shared_bytes"));
        assert_eq!(nearest("temperature", keys), None);
        assert_eq!(nearest("", keys), None);
        assert_eq!(nearest("x", ["y"]), None);
        assert_eq!(nearest(&"grid".repeat(1000), keys), None);
    }
}
