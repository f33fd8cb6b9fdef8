//! Reads files and the output of programs, both up to a size limit.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use protocol::clock::Clock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// Limit on bytes of a file or of a program's output.
const BYTES_MAX: u64 = 1 << 20;
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// The beginning of a file.
pub(super) fn head(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The end of a file, from the start of a line: the scrubber would not recognise part of a name.
pub(super) fn tail(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    let start = size.saturating_sub(BYTES_MAX);
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.take(BYTES_MAX).read_to_end(&mut bytes)?;
    if start > 0 {
        bytes = whole_lines(&bytes).to_vec();
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// All behind the first line break.
fn whole_lines(bytes: &[u8]) -> &[u8] {
    let first = bytes.iter().position(|&byte| byte == b'\n');
    &bytes[first.map_or(bytes.len(), |first| first + 1)..]
}

/// A program's standard output, if the program succeeds in time; of a long one the beginning.
pub(super) fn answer_of(words: &[&str]) -> Result<String, String> {
    answer(words, |output| {
        let mut bytes = Vec::new();
        output.take(BYTES_MAX).read_to_end(&mut bytes)?;
        Ok(((bytes.len() as u64) < BYTES_MAX, bytes))
    })
}

/// As [`answer_of`], but of a long one the end, from the start of a line.
pub(super) fn end_of_answer(words: &[&str]) -> Result<String, String> {
    answer(words, |mut output| {
        let (mut kept, mut is_cut) = (Vec::new(), false);
        while (&mut output).take(BYTES_MAX).read_to_end(&mut kept)? > 0 {
            let first = kept.len().saturating_sub(BYTES_MAX as usize);
            kept.drain(..first);
            is_cut |= first > 0;
        }
        if is_cut {
            kept = whole_lines(&kept).to_vec();
        }
        Ok((true, kept))
    })
}

/// `read` returns whether it has read all of the output, and what it keeps.
fn answer(
    words: &[&str],
    read: impl FnOnce(ChildStdout) -> io::Result<(bool, Vec<u8>)> + Send + 'static,
) -> Result<String, String> {
    let name = words[0];
    let mut command = Command::new(name);
    command.args(&words[1..]).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command
        .spawn()
        .map_err(|error| format!("{name} cannot be started: {error}"))?;
    let stdout = child.stdout.take();
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let read = stdout.map(read).and_then(Result::ok);
        let _ = sender.send(read);
    });
    let clock = Clock::monotonic();
    let asked_ns = clock.now_ns();
    let answer = receiver.recv_timeout(ANSWER_WITHIN);
    let is_whole = matches!(answer, Ok(Some((true, _)) | None));
    let past = Duration::from_nanos(clock.now_ns().saturating_sub(asked_ns));
    let left = ANSWER_WITHIN.saturating_sub(past);
    // Kill a program that exceeds the limit, answers late, or keeps running after closing its
    // output.
    let has_ended = is_whole && ends_within(&child, left);
    if !has_ended {
        let _ = child.kill();
    }
    let status = child.wait().map_err(|error| format!("{name}: {error}"))?;
    if has_ended && !status.success() {
        return Err(format!("{name} failed ({status})"));
    }
    if is_whole && !has_ended {
        let within = ANSWER_WITHIN.as_secs();
        return Err(format!("{name} has not exited within {within} s"));
    }
    match answer {
        Ok(Some((_, bytes))) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Ok(None) => Err(format!("{name}: its output cannot be read")),
        Err(_) => Err(format!(
            "{name} has not answered within {} s",
            ANSWER_WITHIN.as_secs()
        )),
    }
}

/// Whether a child exits within that time; the caller must still wait for it.
fn ends_within(child: &Child, time: Duration) -> bool {
    let Ok(process) = pidfd_open(Pid::from_child(child), PidfdFlags::empty()) else {
        return false;
    };
    let time = Timespec::try_from(time).ok();
    let mut ended = [PollFd::new(&process, PollFlags::IN)];
    retry_on_intr(|| poll(&mut ended, time.as_ref())).is_ok_and(|ready| ready > 0)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_end_of_a_long_log_begins_with_a_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let line = "job \"alice\" attached\n";
        let lines = BYTES_MAX as usize / line.len() + 2;
        fs::write(&path, line.repeat(lines)).unwrap();
        let taken = tail(&path).unwrap();
        assert!(taken.starts_with(line) && taken.ends_with(line));
        fs::write(&path, "short\n").unwrap();
        assert_eq!(tail(&path).unwrap(), "short\n");
    }

    #[test]
    fn a_program_that_fails_is_missing_or_says_too_much_is_bounded() {
        assert_eq!(answer_of(&["echo", "yes"]), Ok("yes\n".to_owned()));
        assert!(
            answer_of(&["no-such-program"])
                .unwrap_err()
                .contains("cannot be started")
        );
        assert!(answer_of(&["false"]).unwrap_err().contains("failed ("));
        let silent = answer_of(&["sh", "-c", "exec >&-; exec sleep 3600"]);
        assert!(silent.unwrap_err().contains("has not exited"));
        let much = answer_of(&["yes"]).unwrap();
        assert_eq!(much.len() as u64, BYTES_MAX);
        // The last of 300 000 lines of more bytes than are kept.
        let end = end_of_answer(&["seq", "300000"]).unwrap();
        assert!(end.ends_with("\n300000\n"), "{:?}", end.lines().last());
        let first: u32 = end.lines().next().unwrap().parse().unwrap();
        assert!(first >= 100_000 && end.len() as u64 <= BYTES_MAX, "{first}");
        assert_eq!(end_of_answer(&["echo", "yes"]), Ok("yes\n".to_owned()));
    }
}
