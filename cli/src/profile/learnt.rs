//! `pillion profile learnt`: the kernel durations learnt from runs of programs, as the daemons keep
//! them. Daemons of one GPU model share them: an entry that several daemons report is shown once.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use clap::Args;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use profiler::Profile;
use profiler::nearest::nearest;
use protocol::hello::{HelloError, LearntOf, ask_learnt, ask_learnt_list, connect_within};
use scheduler::host::learnt::Listed;
use serde::Deserialize;
use serde_json::json;

use super::output;
use super::show::json_of;
use crate::daemons::{PATIENCE, sockets};
use crate::failure::Failure;
use crate::out;

/// Lists the programs whose kernel durations Pillion has learnt, or writes those of one program as
/// a profile.
///
/// Pillion learns the durations while best-effort jobs run. The next start of the program, in
/// either class, uses them: alone, or for the kernels that the job's profile lacks.
#[derive(Debug, Args)]
#[command(after_help = "Example: pillion profile learnt train.py -o train.profile.toml")]
pub(crate) struct Options {
    /// A program of the list: its path, or the end of its path.
    program: Option<String>,
    /// File for the program's profile; `-`, the default, is standard output.
    #[arg(
        short = 'o',
        long = "output",
        value_name = "FILE",
        requires = "program"
    )]
    output: Option<PathBuf>,
    /// Print JSON instead of a table or of the profile's own format.
    #[arg(long, conflicts_with = "output")]
    json: bool,
    /// User id of the program's owner, if several users have it. Only root sees others' programs.
    #[arg(long, value_name = "UID")]
    user: Option<u32>,
    /// The GPU model, if the machine has several.
    #[arg(long, value_name = "MODEL")]
    device: Option<String>,
}

#[derive(Deserialize)]
struct Document {
    model: String,
    programs: Vec<Listed>,
}

struct Kept {
    listed: Listed,
    model: String,
    socket: PathBuf,
}

/// Exits 69 if no daemon answers, 2 for a program without data or an ambiguous one.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let mut all = ask_all()?;
    all.retain(|kept| {
        let is_users = options.user.is_none_or(|uid| kept.listed.user == uid);
        let device = options.device.as_ref();
        is_users && device.is_none_or(|model| *model == kept.model)
    });
    match &options.program {
        None if options.json => out::line(format_args!("{}", list_json(&all))),
        None => list(&all),
        Some(program) => export(options, program, &all),
    }
}

/// The entries of all daemons, last used first.
fn ask_all() -> Result<Vec<Kept>, Failure> {
    let mut found = BTreeMap::new();
    let mut troubles = Vec::new();
    let mut answers = 0;
    for socket in sockets() {
        let document = ask_learnt_list(&socket, PATIENCE).and_then(|text| {
            serde_json::from_str::<Document>(&text)
                .map_err(|_| HelloError::Malformed("the list is not JSON"))
        });
        match document {
            Ok(document) => {
                answers += 1;
                for listed in document.programs {
                    let model = document.model.clone();
                    let key = (model.clone(), listed.user, listed.program.clone());
                    found.entry(key).or_insert(Kept {
                        listed,
                        model,
                        socket: socket.clone(),
                    });
                }
            }
            Err(error) => troubles.push((socket, error)),
        }
    }
    if answers == 0 {
        return Err(why_none(troubles));
    }
    for (socket, error) in troubles {
        out::note(format_args!("pillion: {}: {error}", socket.display()));
    }
    let mut all: Vec<Kept> = found.into_values().collect();
    all.sort_by_key(|kept| core::cmp::Reverse(kept.listed.used_unix_ms));
    Ok(all)
}

fn why_none(troubles: Vec<(PathBuf, HelloError)>) -> Failure {
    let refused = troubles.iter().find_map(|(_, error)| match error {
        HelloError::Refused(reason) => Some(reason.clone()),
        _ => None,
    });
    if let Some(reason) = refused {
        return anyhow!("{reason}").into();
    }
    let texts = troubles
        .iter()
        .map(|(socket, error)| format!("{}: {error}", socket.display()));
    let texts: Vec<String> = texts.collect();
    Failure::unavailable(match texts.is_empty() {
        true => anyhow!("no daemon is running"),
        false => anyhow!("no daemon answers: {}", texts.join(", ")),
    })
}

fn list_json(all: &[Kept]) -> serde_json::Value {
    let programs: Vec<_> = all
        .iter()
        .map(|kept| {
            let mut entry = json!(kept.listed);
            entry["model"] = json!(kept.model);
            entry
        })
        .collect();
    json!({"schema_version": 1, "programs": programs})
}

fn list(all: &[Kept]) -> Result<(), Failure> {
    if all.is_empty() {
        return out::line(format_args!(
            "nothing is learnt yet; Pillion learns durations while best-effort jobs run"
        ));
    }
    let header = [
        "program",
        "user",
        "GPU",
        "kernels",
        "launches",
        "time (s, estimated)",
        "last used",
    ];
    let mut table = output::table(&header, &["program", "GPU", "last used"]);
    for Kept { listed, model, .. } in all {
        table.add_row([
            listed.program.clone(),
            listed.user.to_string(),
            model.clone(),
            listed.kernels.to_string(),
            listed.launches.to_string(),
            format!("{:.1}", listed.time_ms as f64 / 1e3),
            moment(listed.used_unix_ms),
        ]);
    }
    out::line(format_args!("{}", output::plain(&table)))
}

fn moment(unix_ms: u64) -> String {
    let unix_ms = i64::try_from(unix_ms).unwrap_or(0);
    let at = Timestamp::from_millisecond(unix_ms).unwrap_or_default();
    let at = at.to_zoned(TimeZone::system());
    at.strftime("%Y-%m-%d %H:%M").to_string()
}

fn export(options: &Options, program: &str, all: &[Kept]) -> Result<(), Failure> {
    let kept = select(program, all).map_err(Failure::usage)?;
    let file = fetch(kept)?;
    let mut text = String::new();
    File::from(file)
        .read_to_string(&mut text)
        .context("cannot read the kept durations")?;
    let profile = Profile::parse(&text, Path::new(&kept.listed.program))?;
    if options.json {
        return out::line(format_args!("{}", json_of(&profile)));
    }
    output::write(&profile.write(), options.output.as_deref())
}

fn fetch(kept: &Kept) -> Result<OwnedFd, Failure> {
    let of = LearntOf {
        program: kept.listed.program.clone(),
        device: String::new(),
        user: Some(kept.listed.user),
    };
    let connection = connect_within(&kept.socket, PATIENCE)?;
    let file = ask_learnt(&connection, &of, None)?;
    let program = &kept.listed.program;
    Ok(file.with_context(|| format!("the kept durations of {program} no longer exist"))?)
}

/// The one match: a whole path before ends of paths.
fn select<'a>(program: &str, all: &'a [Kept]) -> anyhow::Result<&'a Kept> {
    let is_end = |path: &str| Path::new(path).ends_with(program);
    let whole: Vec<&Kept> = all.iter().filter(|k| k.listed.program == program).collect();
    let found = match whole.is_empty() {
        true => all.iter().filter(|k| is_end(&k.listed.program)).collect(),
        false => whole,
    };
    match found[..] {
        [kept] => Ok(kept),
        [] => {
            let programs = all.iter().map(|kept| &*kept.listed.program);
            let near = nearest(program, programs.clone())
                .map_or_else(String::new, |near| format!("; nearest is {near}"));
            Err(anyhow!(
                "{program}: no durations are learnt for this program{near}"
            ))
        }
        _ => {
            let texts = found.iter().map(|kept| {
                let Listed { program, user, .. } = &kept.listed;
                format!("{program} (--user {user} --device {})", kept.model)
            });
            let texts: Vec<String> = texts.collect();
            Err(anyhow!("{program}: matches several: {}", texts.join(", ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(program: &str, user: u32, model: &str) -> Kept {
        Kept {
            listed: Listed {
                program: program.to_owned(),
                user,
                kernels: 1,
                launches: 2,
                time_ms: 3,
                bytes: 4,
                used_unix_ms: 5,
            },
            model: model.to_owned(),
            socket: PathBuf::new(),
        }
    }

    #[test]
    fn a_program_is_named_by_its_path_or_the_end_of_it() {
        let all = [
            kept("/a/train.py", 1, "T4"),
            kept("/b/train.py", 1, "T4"),
            kept("/b/serve.py", 1, "T4"),
            kept("/b/serve.py", 2, "T4"),
        ];
        let of = |program: &str| select(program, &all).map(|kept| kept.listed.program.as_str());
        assert_eq!(of("/a/train.py").unwrap(), "/a/train.py");
        assert_eq!(of("b/train.py").unwrap(), "/b/train.py");
        let said = |program: &str| of(program).unwrap_err().to_string();
        assert!(said("train.py").contains("/a/train.py (--user 1 --device T4), /b/train.py"));
        assert!(said("serve.py").contains("--user 2"));
        assert!(said("/a/trein.py").contains("nearest is /a/train.py"));
        assert!(said("rain.py").contains("no durations are learnt"));
    }
}
