//! Reports which processes CUPTI timed, and why it did not time the others.

use std::ffi::OsString;
use std::path::Path;

use protocol::recording::Cupti;

use super::merge::Merged;
use crate::profile::output::counted;

/// The library's value for `--cupti`; an error if it names no file.
pub(super) fn value_of(asked: &Path) -> Result<OsString, String> {
    if asked == Path::new("auto") || asked == Path::new("off") {
        return Ok(asked.into());
    }
    if !asked.is_file() {
        let shown = asked.display();
        return Err(format!(
            "--cupti {shown}: expected auto, off, or the path of a libcupti.so"
        ));
    }
    // The job may change its folder, and the linker searches elsewhere for a name without a slash.
    let absolute = std::path::absolute(asked).map_err(|error| error.to_string())?;
    Ok(absolute.into_os_string())
}

/// A sentence for each reason why CUPTI alone did not time a process.
pub(super) fn sentences(merged: &Merged) -> Vec<String> {
    let mut all = Vec::new();
    for (&is, &processes) in &merged.cupti {
        let Some(mut sentence) = sentence(is) else {
            continue;
        };
        if merged.cupti.len() > 1 {
            let processes = counted(processes, "process", "processes");
            sentence = format!("in {processes}: {sentence}");
        }
        all.push(sentence);
    }
    all
}

fn sentence(is: Cupti) -> Option<String> {
    let why = match is {
        Cupti::Unasked | Cupti::Used | Cupti::Off => return None,
        Cupti::Lost => {
            let text = "CUPTI reported kernels until another tool in the process took it over; from then on events timed the kernels that CUPTI had not reported";
            return Some(text.to_owned());
        }
        Cupti::SoftwareGpu => "the software GPU has no CUPTI".to_owned(),
        Cupti::NotFound => "no CUPTI library was found that could be loaded".to_owned(),
        Cupti::Profiled => {
            "the environment shows that a tool of NVIDIA profiles the process".to_owned()
        }
        Cupti::Incomplete => "the CUPTI library lacks a function".to_owned(),
        Cupti::Unfit(version) => {
            format!(
                "CUPTI's version {version} does not fit this driver, or is older than CUDA 11.0"
            )
        }
        Cupti::Taken => "another tool in the process uses CUPTI".to_owned(),
        Cupti::Failed(call, result) => {
            format!("{} failed with {result}{}", call.name(), meaning(result))
        }
    };
    Some(format!(
        "kernels were timed by events and not by CUPTI: {why}"
    ))
}

/// Results of `cupti_result.h` on which an operator can act.
fn meaning(result: u32) -> &'static str {
    match result {
        15 => " (not initialised)",
        33 | 40 => " (not on this virtual GPU)",
        35 => " (only an administrator may profile, see NVIDIA's ERR_NVGPUCTRPERM)",
        41 => " (not in confidential computing)",
        43 => " (not on MIG)",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use protocol::recording::Call;

    use super::*;

    #[test]
    fn a_process_that_was_timed_as_asked_needs_no_sentence() {
        let mut merged = Merged::default();
        merged.cupti.extend([(Cupti::Used, 3), (Cupti::Off, 1)]);
        assert!(sentences(&merged).is_empty());
    }

    #[test]
    fn a_reason_is_said_with_its_processes_where_they_differ() {
        let mut merged = Merged::default();
        let failed = Cupti::Failed(Call::Enable, 35);
        merged.cupti.insert(failed, 2);
        let text = "kernels were timed by events and not by CUPTI: cuptiActivityEnable failed with 35 \
                    (only an administrator may profile, see NVIDIA's ERR_NVGPUCTRPERM)";
        assert_eq!(sentences(&merged), [text]);
        merged.cupti.insert(Cupti::Used, 1);
        assert_eq!(sentences(&merged), [format!("in 2 processes: {text}")]);
    }

    #[test]
    fn a_file_that_is_not_there_is_refused() {
        assert!(value_of(Path::new("/no/such/libcupti.so")).is_err());
        assert_eq!(value_of(Path::new("off")).unwrap(), "off");
    }
}
