//! Removes names from an error report: jobs, programs, users, hosts, paths, addresses and ids.
//! Queries nothing of the machine.
//!
//! A name gets one pseudonym in all files of a bundle (`job-1`, `user-1`), so that files can be
//! read together. Names are *learnt* first, from fields of documents and from the forms in which
//! the daemon writes about jobs and programs. Then every text is *scrubbed* of all learnt names
//! that stand as a word, and of everything that looks like a path, an address or an id. Numbers,
//! Pillion's own keywords, versions, names of GPUs with UUIDs and PCI addresses, system paths
//! ([`KEPT_PATHS`]) and, as in `pillion profile scrub`, names of kernels stay.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Class {
    Job,
    Program,
    User,
    Host,
    /// A file or folder that is not the system's.
    Path,
    /// Network or mail.
    Address,
    /// Of a container, a pod or a session.
    Id,
    /// Text of a configuration that is not a keyword of Pillion.
    Word,
}

impl Class {
    /// The name in pseudonyms and in the manifest.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Job => "job",
            Self::Program => "program",
            Self::User => "user",
            Self::Host => "host",
            Self::Path => "path",
            Self::Address => "address",
            Self::Id => "id",
            Self::Word => "word",
        }
    }
}

/// Replacements by class.
pub(super) type Tally = BTreeMap<&'static str, u64>;

/// Prefixes of paths that identify no user of the machine; the rest of the path is scrubbed as any
/// text. A prefix without a final `/` names a file or folder, maybe without a suffix ([`kept_of`]).
pub(super) const KEPT_PATHS: [&str; 21] = [
    "/usr/lib/",
    "/usr/lib64/",
    "/usr/bin/",
    "/usr/sbin/",
    "/usr/local/cuda",
    "/usr/local/nvidia/",
    "/lib/",
    "/lib64/",
    "/bin/",
    "/sbin/",
    "/etc/pillion",
    "/etc/os-release",
    "/etc/ld.so",
    "/proc/",
    "/sys/",
    "/dev/",
    "/run/pillion",
    "/run/nvidia",
    "/var/lib/pillion",
    "/var/log/nvidia-mps",
    "/tmp/nvidia-mps",
];
/// File extensions that are kept after a pseudonym, because they show the kind of file.
const KEPT_ENDS: [&str; 8] = [
    ".toml", ".sock", ".so", ".so.1", ".log", ".py", ".json", ".sqlite",
];
/// A run of at least this many hexadecimal digits is an id.
const ID_DIGITS: usize = 24;

#[derive(Debug, Default)]
pub(super) struct Scrubber {
    /// Replacements of names, by first character, longest name first.
    names: BTreeMap<char, Vec<(String, String, Class)>>,
    given: BTreeMap<Class, usize>,
    /// All pseudonyms.
    known: BTreeMap<(Class, String), String>,
}

impl Scrubber {
    pub(super) fn pseudonym(&mut self, class: Class, text: &str) -> String {
        if let Some(known) = self.known.get(&(class, text.to_owned())) {
            return known.clone();
        }
        let number = self.given.entry(class).or_default();
        *number += 1;
        let made = format!("{}-{number}", class.name());
        self.known.insert((class, text.to_owned()), made.clone());
        made
    }

    pub(super) fn given(&self) -> Tally {
        let given = self.given.iter();
        given
            .map(|(class, &count)| (class.name(), count as u64))
            .collect()
    }

    /// Declares a text a name, wherever it stands as a word. A number, or a name of one or two
    /// characters (of a host or a user: of one), would match everywhere: it is a name only in
    /// quotes, as the daemon writes ids.
    pub(super) fn learn(&mut self, class: Class, text: &str) {
        let is_number = text.chars().all(|c| c.is_ascii_digit());
        if text.is_empty() || text == "root" {
            return;
        }
        let mut pseudonym = self.pseudonym(class, text);
        if class == Class::Path {
            pseudonym.push_str(end_of(text));
        }
        let escaped = text.escape_debug().to_string();
        let chars_min = match class {
            Class::Host | Class::User => 2,
            _ => 3,
        };
        if is_number || text.chars().count() < chars_min {
            self.add(format!("\"{escaped}\""), format!("\"{pseudonym}\""), class);
            return;
        }
        self.add(text.to_owned(), pseudonym.clone(), class);
        if escaped != text {
            self.add(escaped, pseudonym, class);
        }
    }

    /// Gives a user's number and name the same pseudonym.
    pub(super) fn learn_user(&mut self, uid: u32, name: &str) {
        if uid == 0 {
            return;
        }
        let pseudonym = self.pseudonym(Class::User, &uid.to_string());
        self.known
            .entry((Class::User, name.to_owned()))
            .or_insert(pseudonym);
        self.learn(Class::User, name);
    }

    fn add(&mut self, name: String, pseudonym: String, class: Class) {
        let Some(first) = name.chars().next() else {
            return;
        };
        let names = self.names.entry(first).or_default();
        if names.iter().all(|(known, ..)| *known != name) {
            names.push((name, pseudonym, class));
            names.sort_by_key(|(name, ..)| core::cmp::Reverse(name.len()));
        }
    }

    pub(super) fn learn_json(&mut self, value: &Value) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| self.learn_json(item)),
            Value::Object(fields) => {
                for (key, field) in fields {
                    match field {
                        Value::String(text) if key == "job" => self.learn(Class::Job, text),
                        Value::String(text) if is_program(key, fields) => {
                            self.learn(Class::Program, text);
                        }
                        Value::String(text) => self.learn_text(text),
                        field => self.learn_json(field),
                    }
                }
            }
            Value::String(text) => self.learn_text(text),
            _ => {}
        }
    }

    /// Learns jobs and programs from the daemon's forms: `job "train"`, `attached: best-effort job
    /// "train", python, client 3`, `turned away: python, job "train"`, and `pid 7 python`.
    pub(super) fn learn_text(&mut self, text: &str) {
        for line in text.lines() {
            let mut rest = line;
            while let Some((before, behind)) = rest.split_once("job \"") {
                let Some((id, after)) = quoted(behind) else {
                    break;
                };
                self.learn(Class::Job, &id);
                if let Some(name) = after
                    .strip_prefix(", ")
                    .and_then(|name| name.split_once(", client "))
                {
                    self.learn(Class::Program, name.0);
                }
                let before = before.strip_suffix(", ").unwrap_or_default();
                let name = before.split_whitespace().next_back();
                if let Some(name) = name.filter(|&name| name != "process") {
                    self.learn(Class::Program, name);
                }
                rest = after;
            }
            self.learn_behind_pid(line);
        }
    }

    fn learn_behind_pid(&mut self, line: &str) {
        for part in line.split("pid ").skip(1) {
            let mut words = part.split(' ');
            let is_pid = words.next().is_some_and(|pid| pid.parse::<u32>().is_ok());
            let Some(name) = words.next().filter(|_| is_pid) else {
                continue;
            };
            // Not names: words that follow a pid in a sentence.
            let sentence = [
                "of", "is", "has", "holds", "asks", "asked", "was", "had", "and", "does", "in",
                "to", "uses", "shares", "may", "will",
            ];
            let name = name.trim_end_matches([',', ':', ';', ')']);
            if !sentence.contains(&name) && name.chars().next().is_some_and(char::is_alphanumeric) {
                self.learn(Class::Program, name);
            }
        }
    }

    pub(super) fn json(&mut self, value: &Value, tally: &mut Tally) -> Value {
        match value {
            Value::String(text) => self.text(text, tally).into(),
            Value::Array(items) => {
                let items = items.iter();
                items.map(|item| self.json(item, tally)).collect()
            }
            Value::Object(fields) => {
                let scrubbed = fields
                    .iter()
                    .map(|(key, field)| (key.clone(), self.field(key, field, fields, tally)));
                Value::Object(scrubbed.collect())
            }
            other => other.clone(),
        }
    }

    fn field(
        &mut self,
        key: &str,
        field: &Value,
        beside: &Map<String, Value>,
        tally: &mut Tally,
    ) -> Value {
        let class = match field {
            Value::String(text) if text.is_empty() => None,
            Value::String(_) if key == "job" => Some(Class::Job),
            Value::String(_) if key == "profile" => Some(Class::Path),
            Value::String(_) if is_program(key, beside) => Some(Class::Program),
            Value::Number(number) if is_user(key) && number.as_u64() != Some(0) => {
                Some(Class::User)
            }
            _ => None,
        };
        match (class, field) {
            (Some(class), Value::String(text)) => self.replaced(class, text, tally).into(),
            (Some(class), number) => self.replaced(class, &number.to_string(), tally).into(),
            (None, field) => self.json(field, tally),
        }
    }

    pub(super) fn replaced(&mut self, class: Class, text: &str, tally: &mut Tally) -> String {
        *tally.entry(class.name()).or_default() += 1;
        self.pseudonym(class, text)
    }

    pub(super) fn text(&mut self, text: &str, tally: &mut Tally) -> String {
        let mut scrubbed = String::with_capacity(text.len());
        let mut before = None;
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let is_start = before.is_none_or(|before| !is_word(before));
            let taken = self
                .command_at(rest, &text[..text.len() - rest.len()], tally)
                .or_else(|| self.name_at(rest, is_start, tally))
                .or_else(|| self.path_at(rest, before, tally))
                .or_else(|| self.token_at(rest, is_start && before != Some('.'), &scrubbed, tally));
            let (bytes, pseudonym) = match taken {
                Some((bytes, pseudonym)) if bytes > 0 => (bytes, pseudonym),
                _ => (first.len_utf8(), first.to_string()),
            };
            scrubbed.push_str(&pseudonym);
            before = rest[..bytes].chars().next_back();
            rest = &rest[bytes..];
        }
        scrubbed
    }

    /// The longest name that stands here as a word.
    fn name_at(
        &mut self,
        rest: &str,
        is_start: bool,
        tally: &mut Tally,
    ) -> Option<(usize, String)> {
        let first = rest.chars().next()?;
        let fits = |name: &str| {
            let behind = rest.strip_prefix(name)?;
            let is_begun = is_start || !is_word(first);
            let ends = name.chars().next_back().is_some_and(is_word);
            let goes_on = behind.chars().next().is_some_and(is_word);
            (is_begun && !(ends && goes_on)).then_some(name.len())
        };
        let names = self.names.get(&first)?.iter();
        let mut found = names.filter_map(|(name, to, class)| Some((fits(name)?, to, *class)));
        let (mut bytes, pseudonym, class) = found.next()?;
        // The machine's name may have a domain.
        if class == Class::Host && rest[bytes..].starts_with('.') {
            bytes += length(&rest[bytes..], |c| {
                c.is_ascii_alphanumeric() || ".-".contains(c)
            });
            bytes -= usize::from(rest[..bytes].ends_with('.'));
        }
        let pseudonym = pseudonym.clone();
        *tally.entry(class.name()).or_default() += 1;
        Some((bytes, pseudonym))
    }

    /// A path that begins here. A quoted one may have spaces.
    fn path_at(
        &mut self,
        rest: &str,
        before: Option<char>,
        tally: &mut Tally,
    ) -> Option<(usize, String)> {
        let is_begun = before.is_none_or(|c| !c.is_alphanumeric() && !"._-/<>".contains(c));
        if !rest.starts_with('/') || !is_begun {
            return None;
        }
        let bytes = match before {
            None => until(rest, &["\n", "\"", ":", ";", ", ", " ("]),
            Some(quote @ ('"' | '\'' | '`')) => rest.find(quote).unwrap_or(rest.len()),
            Some(_) => length(rest, |c| {
                !c.is_whitespace() && !"\"'`,;:)(]}<>|=".contains(c)
            }),
        };
        if let Some(kept) = kept_of(&rest[..bytes]) {
            return Some((kept.len(), kept.to_owned()));
        }
        let path = rest[..bytes].trim_end_matches(['.', '/']);
        if path.len() < 2 {
            return None;
        }
        let pseudonym = self.replaced(Class::Path, path, tally);
        Some((path.len(), pseudonym + end_of(path)))
    }

    /// A process's command line after `pid 7` or `pid 7 of user 1000`. It may contain parentheses
    /// and line breaks: it extends to the last `)` of the first line that has one.
    fn command_at(
        &mut self,
        rest: &str,
        before: &str,
        tally: &mut Tally,
    ) -> Option<(usize, String)> {
        let command = rest.strip_prefix('(')?;
        if !is_behind_pid(before) || command.starts_with("socket /") {
            return None;
        }
        let closed = command.find(')').unwrap_or(command.len());
        let line = closed + until(&command[closed..], &["\n"]);
        let bytes = command[..line].rfind(')').unwrap_or(line);
        let pseudonym = self.replaced(Class::Program, &command[..bytes], tally);
        Some((1 + bytes, format!("({pseudonym}")))
    }

    /// An address, an id, or a user's number that begins here.
    fn token_at(
        &mut self,
        rest: &str,
        is_start: bool,
        before: &str,
        tally: &mut Tally,
    ) -> Option<(usize, String)> {
        if !is_start {
            return None;
        }
        let token = |is_part: fn(char) -> bool| &rest[..length(rest, is_part)];
        let plain = token(|c| c.is_ascii_alphanumeric() || c == '-');
        if plain.starts_with("GPU-") || plain.starts_with("MIG-") {
            return Some((plain.len(), plain.to_owned()));
        }
        let is_users = ["user ", "users ", "user-", "user@", "uid "];
        let is_users = is_users.iter().any(|word| before.ends_with(word));
        let number = token(|c| c.is_ascii_digit());
        if is_users && !number.is_empty() && number != "0" {
            let pseudonym = self.replaced(Class::User, number, tally);
            return Some((number.len(), pseudonym));
        }
        let dotted = token(|c| c.is_ascii_digit() || c == '.').trim_end_matches('.');
        let colons = token(|c| c.is_ascii_hexdigit() || c == ':').trim_end_matches(':');
        let mail = token(|c| c.is_ascii_alphanumeric() || "._%+-@".contains(c));
        let (class, found) = if is_uuid(plain) {
            (Class::Id, plain)
        } else if is_hex_id(plain) {
            (Class::Id, token(|c| c.is_ascii_hexdigit()))
        } else if is_ipv4(dotted) {
            (Class::Address, dotted)
        } else if colons.matches(':').count() > 2 {
            (Class::Address, colons)
        } else if is_mail(mail) {
            (Class::Address, mail.trim_end_matches('.'))
        } else {
            return None;
        };
        let pseudonym = self.replaced(class, found, tally);
        Some((found.len(), pseudonym))
    }
}

pub(super) fn kept_of(path: &str) -> Option<&'static str> {
    let is_kept = |kept: &&&str| {
        let Some(behind) = path.strip_prefix(**kept) else {
            return false;
        };
        let is_name = behind.is_empty() || behind.starts_with(['/', '.']);
        let version = behind.strip_prefix('-').unwrap_or(behind);
        let is_version = version.starts_with(|c: char| c.is_ascii_digit());
        kept.ends_with('/') || is_name || (kept.ends_with("/cuda") && is_version)
    };
    KEPT_PATHS.iter().find(is_kept).copied()
}

fn end_of(path: &str) -> &'static str {
    let end = KEPT_ENDS.iter().find(|end| path.ends_with(**end));
    end.copied().unwrap_or_default()
}

/// Whether a text ends with `pid 7 ` or `pid 7 of user 1000 `.
fn is_behind_pid(text: &str) -> bool {
    let mut words = text.rsplit(' ');
    let is_number = |word: Option<&str>| word.is_some_and(|word| word.parse::<u32>().is_ok());
    if words.next() != Some("") || !is_number(words.next()) {
        return false;
    }
    let is_pid = |word: Option<&str>| word.is_some_and(|word| word.ends_with("pid"));
    match words.next() {
        Some("user") => {
            words.next() == Some("of") && is_number(words.next()) && is_pid(words.next())
        }
        word => is_pid(word),
    }
}

/// The text up to the closing quote, and the rest.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut is_escaped = false;
    let end = text.find(|c: char| {
        let ends = c == '"' && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        ends
    })?;
    let inner = text[..end].replace("\\\"", "\"").replace("\\\\", "\\");
    Some((inner, &text[end + 1..]))
}

/// Whether a field is a program's name: its key says so, or a process id stands beside it.
fn is_program(key: &str, beside: &Map<String, Value>) -> bool {
    key == "program" || (key == "name" && beside.contains_key("pid"))
}

fn is_user(key: &str) -> bool {
    matches!(key, "uid" | "user")
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Length of the prefix of matching characters.
fn length(text: &str, is_part: impl Fn(char) -> bool) -> usize {
    text.find(|c| !is_part(c)).unwrap_or(text.len())
}

/// Length up to the first of these.
fn until(text: &str, ends: &[&str]) -> usize {
    let ends = ends.iter().filter_map(|end| text.find(end));
    ends.min().unwrap_or(text.len())
}

/// `8-4-4-4-12` hexadecimal digits.
fn is_uuid(text: &str) -> bool {
    let parts: Vec<usize> = text.split('-').map(str::len).collect();
    let is_hex = text.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
    parts == [8, 4, 4, 4, 12] && is_hex
}

fn is_hex_id(text: &str) -> bool {
    length(text, |c| c.is_ascii_hexdigit()) >= ID_DIGITS
}

fn is_ipv4(text: &str) -> bool {
    let parts: Vec<&str> = text.split('.').collect();
    parts.len() == 4 && parts.iter().all(|part| part.parse::<u8>().is_ok())
}

/// A name, `@` and a domain. An instance of a systemd unit has nearly that form.
fn is_mail(text: &str) -> bool {
    const UNITS: [&str; 5] = ["service", "slice", "scope", "socket", "target"];
    let Some((name, domain)) = text.trim_end_matches('.').split_once('@') else {
        return false;
    };
    let end = domain.rsplit_once('.').map(|(_, end)| end);
    !name.is_empty() && end.is_some_and(|end| !UNITS.contains(&end))
}

#[cfg(test)]
mod tests;
