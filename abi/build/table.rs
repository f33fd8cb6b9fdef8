//! Reads and checks the list of entry points, for the build script and the tests, which show that
//! it finds mistakes. The file is CSV (RFC 4180: a field with commas is in double quotes, a double
//! quote inside is doubled), one entry point per line, without line breaks inside fields. The
//! parser is hand-written: a dependency would delay every crate of the workspace.

use std::collections::BTreeMap;

const HEADER: &str = "symbol,api,version,per_thread,category,route,softgpu,prototype";

const CATEGORIES: [(&str, &str); 12] = [
    ("context", "Context"),
    ("copy", "Copy"),
    ("entry", "Entry"),
    ("graph", "Graph"),
    ("launch", "Launch"),
    ("memory", "Memory"),
    ("module", "Module"),
    ("other", "Other"),
    ("query", "Query"),
    ("stream", "Stream"),
    ("sync", "Sync"),
    ("texture", "Texture"),
];

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) symbol: String,
    pub(crate) api: String,
    pub(crate) version: u32,
    pub(crate) per_thread: bool,
    pub(crate) category: &'static str,
    pub(crate) hooked: bool,
    pub(crate) softgpu: bool,
    pub(crate) prototype: String,
}

/// The rows of `text` sorted by symbol, or all its mistakes, each as `file:line: what is wrong`.
pub(crate) fn parse(file: &str, text: &str) -> Result<Vec<Row>, Vec<String>> {
    let mut lines = (1..).zip(text.lines());
    let mut errors = Vec::new();
    if lines.next().map(|(_, header)| header) != Some(HEADER) {
        errors.push(format!("{file}:1: the header must read `{HEADER}`"));
    }
    let mut rows: Vec<(usize, Row)> = Vec::new();
    for (line, content) in lines {
        match row(content) {
            Ok(row) => rows.push((line, row)),
            Err(error) => errors.push(format!("{file}:{line}: {error}")),
        }
    }
    errors.extend(duplicates(&rows).map(|(line, error)| format!("{file}:{line}: {error}")));
    if !errors.is_empty() {
        return Err(errors);
    }
    rows.sort_by(|(_, a), (_, b)| a.symbol.as_bytes().cmp(b.symbol.as_bytes()));
    Ok(rows.into_iter().map(|(_, row)| row).collect())
}

fn row(content: &str) -> Result<Row, String> {
    let fields = fields(content)?;
    let count = fields.len();
    let [
        symbol,
        api,
        version,
        per_thread,
        category,
        route,
        softgpu,
        prototype,
    ] = <[String; 8]>::try_from(fields).map_err(|_| format!("{count} fields instead of 8"))?;
    let is_name = |name: &str| {
        name.starts_with("cu") && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
    };
    if !is_name(&symbol) {
        return Err(format!("`{symbol}` is not a driver symbol"));
    }
    if !is_name(&api) || !symbol.starts_with(&api) {
        return Err(format!("`{symbol}` is not a form of the api `{api}`"));
    }
    let version = version
        .parse()
        .ok()
        .filter(|version| (2_000..100_000).contains(version))
        .ok_or_else(|| format!("`{version}` is not a CUDA version (e.g. 12080)"))?;
    let per_thread = bit("per_thread", &per_thread)?;
    if per_thread != (symbol.ends_with("_ptsz") || symbol.ends_with("_ptds")) {
        return Err(format!("per_thread contradicts the suffix of `{symbol}`"));
    }
    let (_, category) = *CATEGORIES
        .iter()
        .find(|(word, _)| *word == category)
        .ok_or_else(|| format!("unknown category `{category}`"))?;
    let hooked = match route.as_str() {
        "hook" => true,
        "pass" => false,
        _ => return Err(format!("unknown route `{route}`")),
    };
    let softgpu = bit("softgpu", &softgpu)?;
    if prototype.is_empty() {
        return Err(format!("`{symbol}` has no prototype"));
    }
    Ok(Row {
        symbol,
        api,
        version,
        per_thread,
        category,
        hooked,
        softgpu,
        prototype,
    })
}

pub(crate) fn fields(content: &str) -> Result<Vec<String>, String> {
    let mut fields = vec![String::new()];
    let mut quoted = false;
    let mut chars = content.chars().peekable();
    while let Some(char) = chars.next() {
        let field = fields
            .last_mut()
            .expect("starts with one field and only grows");
        match char {
            '"' if quoted && chars.peek() == Some(&'"') => {
                chars.next();
                field.push('"');
            }
            '"' if quoted => quoted = false,
            '"' if field.is_empty() => quoted = true,
            '"' => return Err("a quote inside an unquoted field".to_owned()),
            ',' if !quoted => fields.push(String::new()),
            _ => field.push(char),
        }
    }
    if quoted {
        return Err("a quote is not closed".to_owned());
    }
    Ok(fields)
}

fn bit(column: &str, field: &str) -> Result<bool, String> {
    match field {
        "0" => Ok(false),
        "1" => Ok(true),
        _ => Err(format!("{column} is `{field}`, not 0 or 1")),
    }
}

/// Duplicate symbols, and those that cuGetProcAddress confuses: equal api, version and flavour.
fn duplicates(rows: &[(usize, Row)]) -> impl Iterator<Item = (usize, String)> {
    let mut symbols = BTreeMap::new();
    let mut requests = BTreeMap::new();
    rows.iter().filter_map(move |(line, row)| {
        if let Some(first) = symbols.insert(&row.symbol, *line) {
            return Some((
                *line,
                format!("`{}` is already in line {first}", row.symbol),
            ));
        }
        requests
            .insert((&row.api, row.version, row.per_thread), *line)
            .map(|first| {
                (
                    *line,
                    format!("`{}` answers the same request as line {first}", row.symbol),
                )
            })
    })
}
