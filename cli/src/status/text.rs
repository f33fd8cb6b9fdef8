//! Text for a terminal of a given width, in columns: measured, cut, and wrapped. A terminal wraps a
//! long line at its edge, which breaks tables. So `pillion status` prints nothing wider than it.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

const ELLIPSIS: char = '…';

/// Columns of a text: the larger width where terminals differ in characters that are drawn as one.
pub(crate) fn width(text: &str) -> usize {
    let chars: usize = text.chars().map(char_width).sum();
    chars.max(text.width())
}

fn char_width(c: char) -> usize {
    c.width().unwrap_or(0)
}

fn head(text: &str, columns: usize) -> &str {
    let mut end = 0;
    for (place, c) in text.char_indices() {
        let next = place + c.len_utf8();
        if width(&text[..next]) > columns {
            break;
        }
        end = next;
    }
    &text[..end]
}

fn tail(text: &str, columns: usize) -> &str {
    let places = text.char_indices().map(|(place, _)| place);
    let mut tails = places.map(|place| &text[place..]);
    tails
        .find(|tail| width(tail) <= columns)
        .unwrap_or_default()
}

pub(super) fn cut_end(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    if columns == 0 {
        return String::new();
    }
    format!("{}{ELLIPSIS}", head(text, columns - 1).trim_end())
}

/// Cuts the middle of a text that is too wide: ids differ at either end.
pub(super) fn cut_middle(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    if columns == 0 {
        return String::new();
    }
    let end = (columns - 1) / 2;
    let (begin, end) = (head(text, columns - 1 - end), tail(text, end));
    format!("{begin}{ELLIPSIS}{end}")
}

/// Wraps a text to lines of at most so many columns, between words where possible. The first line
/// begins with `first`, each other one with `hanging`.
pub(crate) fn wrap(text: &str, columns: usize, first: &str, hanging: &str) -> Vec<String> {
    // A terminal narrower than the indentation gets none.
    let (first, hanging) = match width(first).max(width(hanging)) + 2 <= columns {
        true => (first, hanging),
        false => ("", ""),
    };
    let mut lines = Vec::new();
    let mut line = first.to_owned();
    let mut is_begun = false;
    for word in text.split(' ') {
        let mut word = word;
        loop {
            let gap = if is_begun { " " } else { "" };
            if width(&line) + gap.len() + width(word) <= columns {
                line.push_str(gap);
                line.push_str(word);
                is_begun = true;
                break;
            }
            if !is_begun {
                // A word that fits on no line.
                let begin = head(word, columns.saturating_sub(width(&line)));
                let begin = match begin.is_empty() {
                    // Not even its first character fits: it is left out.
                    true => &word[..word.chars().next().map_or(0, char::len_utf8)],
                    false => {
                        line.push_str(begin);
                        begin
                    }
                };
                word = &word[begin.len()..];
                if word.is_empty() {
                    is_begun = true;
                    break;
                }
            }
            lines.push(line.trim_end().to_owned());
            hanging.clone_into(&mut line);
            is_begun = false;
        }
    }
    lines.push(line);
    lines
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_too_wide_is_cut_at_its_end_or_in_its_middle() {
        assert_eq!(cut_end("best-effort", 11), "best-effort");
        assert_eq!(cut_end("best-effort", 8), "best-ef…");
        assert_eq!(cut_end("two words", 5), "two…");
        assert_eq!(cut_middle("23993-b1d6e64669", 16), "23993-b1d6e64669");
        assert_eq!(cut_middle("23993-b1d6e64669", 10), "23993…4669");
        assert_eq!(cut_middle("訓練サービス", 8), "訓練…ス");
        assert_eq!([cut_end("abc", 1), cut_middle("abc", 1)], ["…", "…"]);
        assert_eq!([cut_end("abc", 0), cut_middle("abc", 0)], ["", ""]);
    }

    #[test]
    fn a_long_text_is_wrapped_between_words_and_a_long_word_within() {
        let lines = wrap("its work in flight does not complete", 20, "  ", "    ");
        assert_eq!(
            lines,
            ["  its work in flight", "    does not", "    complete"]
        );
        assert_eq!(
            wrap("a bcdefghijk l", 6, "", "  "),
            ["a", "  bcde", "  fghi", "  jk l"]
        );
        assert_eq!(wrap("", 10, "- ", "  "), ["- "]);
        assert_eq!(wrap("one two", 3, "      ", "      "), ["one", "two"]);
    }

    proptest! {
        #[test]
        fn nothing_is_wider_than_asked(text in "\\PC{0,60}", columns in 2..70_usize) {
            prop_assert!(width(&cut_end(&text, columns)) <= columns);
            prop_assert!(width(&cut_middle(&text, columns)) <= columns);
            for line in wrap(&text, columns, "  ", "    ") {
                prop_assert!(width(&line) <= columns, "{line:?}");
            }
        }

        #[test]
        fn a_wrapped_text_has_every_word(text in "[a-z ]{0,80}", columns in 8..70_usize) {
            let lines = wrap(&text, columns, "", "");
            let letters = |text: &str| text.replace(' ', "");
            prop_assert_eq!(letters(&lines.concat()), letters(&text));
        }
    }
}
