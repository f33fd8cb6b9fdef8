//! A table that fits a terminal: no row is wider than it, and each row is one line. A column has a
//! rank. If the table is too wide, the columns of the greatest ranks are left out; the others are
//! narrowed as their kind allows, and the remaining space goes to the columns of the smallest
//! ranks. So a width always shows the same columns, unless texts are longer than usual.

use super::text::{cut_end, cut_middle, width};

const GAP: usize = 2;

#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    pub(super) name: &'static str,
    /// Importance: rank 1 is left out last. Ranks are unique within a table.
    pub(super) rank: u8,
    pub(super) is_right: bool,
    pub(super) give: Give,
}

/// How a column becomes narrower than its texts.
#[derive(Clone, Copy, Debug)]
pub(super) enum Give {
    Never,
    /// Its texts lose their ends, down to so many columns.
    End(usize),
    /// Its texts lose their middles, down to so many columns.
    Middle(usize),
    /// Each text has a short form.
    Short(fn(&str) -> &str),
}

impl Column {
    pub(super) const fn words(name: &'static str, rank: u8, give: Give) -> Self {
        Self {
            name,
            rank,
            is_right: false,
            give,
        }
    }

    /// A column of numbers, which are never cut.
    pub(super) const fn numbers(name: &'static str, rank: u8) -> Self {
        Self {
            name,
            rank,
            is_right: true,
            give: Give::Never,
        }
    }

    fn natural(&self, texts: &[&str]) -> usize {
        let texts = texts.iter().map(|text| width(text));
        texts.max().unwrap_or(0).max(width(self.name))
    }

    fn least(&self, texts: &[&str]) -> usize {
        let natural = self.natural(texts);
        match self.give {
            Give::Never => natural,
            Give::End(least) | Give::Middle(least) => natural.min(least.max(width(self.name))),
            Give::Short(short) => {
                let texts: Vec<&str> = texts.iter().map(|text| short(text)).collect();
                self.natural(&texts)
            }
        }
    }

    fn cell(&self, text: &str, columns: usize) -> String {
        let text = match self.give {
            Give::Short(short) if width(text) > columns => short(text),
            _ => text,
        };
        let text = match self.give {
            Give::Middle(_) => cut_middle(text, columns),
            _ => cut_end(text, columns),
        };
        let space = " ".repeat(columns - width(&text));
        match self.is_right {
            true => format!("{space}{text}"),
            false => format!("{text}{space}"),
        }
    }
}

/// Header and rows as lines of at most `columns_max`. A row has a text for each column.
pub(super) fn lines(columns: &[Column], rows: &[Vec<String>], columns_max: usize) -> Vec<String> {
    let texts = |place: usize| -> Vec<&str> {
        let texts = rows
            .iter()
            .map(|row| row.get(place).map_or("", |text| text));
        texts.collect()
    };
    let mut kept: Vec<usize> = (0..columns.len())
        .filter(|&place| texts(place).iter().any(|text| !text.is_empty()))
        .collect();
    let least = |kept: &[usize]| {
        let widths = kept
            .iter()
            .map(|&place| columns[place].least(&texts(place)));
        widths.sum::<usize>() + GAP * kept.len().saturating_sub(1)
    };
    while kept.len() > 1 && least(&kept) > columns_max {
        let last = kept.iter().copied();
        let last = last.max_by_key(|&place| columns[place].rank);
        kept.retain(|&place| Some(place) != last);
    }
    let mut spare = columns_max.saturating_sub(least(&kept));
    let mut widths: Vec<(usize, usize)> = kept
        .iter()
        .map(|&place| (place, columns[place].least(&texts(place))))
        .collect();
    widths.sort_by_key(|&(place, _)| columns[place].rank);
    for (place, given) in &mut widths {
        let column = &columns[*place];
        let more = column.natural(&texts(*place)) - *given;
        let more = match column.give {
            // Such a column is short or whole.
            Give::Short(_) if more > spare => 0,
            _ => more.min(spare),
        };
        *given += more;
        spare -= more;
    }
    widths.sort_unstable();
    let line = |text_of: &dyn Fn(usize) -> String| {
        let cells = widths.iter().map(|&(place, given)| {
            let given = given.min(columns_max);
            columns[place].cell(&text_of(place), given)
        });
        let cells: Vec<String> = cells.collect();
        cells.join(&" ".repeat(GAP)).trim_end().to_owned()
    };
    let header = line(&|place| columns[place].name.to_owned());
    let rows = rows
        .iter()
        .map(|row| line(&|place| row.get(place).cloned().unwrap_or_default()));
    std::iter::once(header).chain(rows).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column; 4] = [
        Column::words("JOB", 1, Give::Middle(8)),
        Column::words("CLASS", 2, Give::Short(short)),
        Column::numbers("P99", 3),
        Column::words("PROGRAM", 4, Give::End(7)),
    ];

    fn short(class: &str) -> &str {
        match class {
            "best-effort" => "BE",
            other => other,
        }
    }

    fn at(columns_max: usize) -> Vec<String> {
        let row = |texts: [&str; 4]| texts.map(str::to_owned).to_vec();
        let rows = [
            row(["23993-b1d6e64669", "best-effort", "-", "python3.11"]),
            row(["serve", "BE", "9.43 ms", "triton"]),
        ];
        lines(&COLUMNS, &rows, columns_max)
    }

    #[test]
    fn what_is_important_stays_longest_and_is_widest() {
        let expected = [
            "JOB               CLASS            P99  PROGRAM",
            "23993-b1d6e64669  best-effort        -  python3.11",
            "serve             BE           9.43 ms  triton",
        ];
        assert_eq!(at(50), expected);
        assert_eq!(at(1000), expected);
        let expected = [
            "JOB               CLASS      P99  PROGRAM",
            "23993-b1d6e64669  BE           -  python3…",
            "serve             BE     9.43 ms  triton",
        ];
        assert_eq!(at(42), expected);
        let expected = [
            "JOB        CLASS      P99  PROGRAM",
            "2399…4669  BE           -  python…",
            "serve      BE     9.43 ms  triton",
        ];
        assert_eq!(at(34), expected);
        let expected = [
            "JOB               CLASS",
            "23993-b1d6e64669  BE",
            "serve             BE",
        ];
        assert_eq!(at(23), expected);
        assert_eq!(at(3), ["JOB", "2…9", "s…e"]);
    }

    #[test]
    fn a_column_without_texts_is_left_out() {
        let rows = [["a", "-", "1", ""], ["b", "-", "2", ""]];
        let rows: Vec<Vec<String>> = rows
            .iter()
            .map(|row| row.iter().map(|text| (*text).to_owned()).collect())
            .collect();
        assert_eq!(lines(&COLUMNS, &rows, 80)[0], "JOB  CLASS  P99");
        assert_eq!(lines(&COLUMNS, &rows, 10)[1], "a    -");
    }
}
