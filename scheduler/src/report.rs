//! Output for people and programs: the status as JSON, events, and errors in one line.

use core::error::Error;

pub mod events;
pub mod status;
pub(crate) mod trace;

/// An error and its causes in one line, omitting causes that the text before contains: a library's
/// errors name their sources, and are sources of others.
#[must_use]
pub fn told_once(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let said = cause.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("gpu0.toml: cannot be read: {source}")]
    struct Unread {
        source: io::Error,
    }

    #[derive(Debug, thiserror::Error)]
    #[error("the daemon cannot start")]
    struct Unstarted(#[source] Unread);

    #[test]
    fn a_cause_is_told_once_whoever_names_it() {
        let source = io::Error::from_raw_os_error(2);
        let why = source.to_string();
        let unread = Unread { source };
        assert_eq!(
            told_once(&unread),
            format!("gpu0.toml: cannot be read: {why}")
        );
        assert_eq!(
            told_once(&Unstarted(unread)),
            format!("the daemon cannot start: gpu0.toml: cannot be read: {why}")
        );
    }
}
