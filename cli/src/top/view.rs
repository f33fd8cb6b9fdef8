//! The choices of the person at the terminal: the selected job, the order, the filter, a pending
//! question. Input: keys (those of nvitop where it has the same function); output: the action.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::model::{Job, Model};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Order {
    /// As daemons list them: by GPU, then by start.
    #[default]
    Listed,
    Name,
    Class,
    P99,
    Share,
    Use,
    Memory,
    Launches,
}

impl Order {
    /// From left to right.
    pub(super) const ALL: [Self; 8] = [
        Self::Listed,
        Self::Name,
        Self::Class,
        Self::P99,
        Self::Share,
        Self::Use,
        Self::Memory,
        Self::Launches,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Listed => "GPU",
            Self::Name => "job",
            Self::Class => "class",
            Self::P99 => "p99",
            Self::Share => "share",
            Self::Use => "GPU time",
            Self::Memory => "memory",
            Self::Launches => "launches",
        }
    }

    fn moved(self, by: isize) -> Self {
        let place = Self::ALL
            .iter()
            .position(|order| *order == self)
            .unwrap_or(0);
        let count = Self::ALL.len() as isize;
        Self::ALL[(place as isize + by).rem_euclid(count) as usize]
    }
}

/// An input line, or a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Prompt {
    /// Shows only jobs whose id, class or user contains this.
    Filter(String),
    /// Options of `pillion set` for a job.
    Set { job: String, line: String },
    /// Whether to stop that job; with its user if another one has a job of that id, too.
    Stop { job: String, user: Option<u64> },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Todo {
    Nothing,
    Quit,
    /// Ask the daemons at once.
    Refresh,
    Run(Vec<String>),
}

/// Identifies a job by GPU, id, user and class: two users may have jobs with the same id, and one
/// user may have one of each class.
type Key = (usize, String, u64, bool);

fn key_of(job: &Job) -> Key {
    (job.gpu, job.id.clone(), job.uid, job.is_hp)
}

#[derive(Debug, Default)]
pub(super) struct View {
    pub(super) order: Order,
    pub(super) is_reversed: bool,
    pub(super) filter: String,
    pub(super) prompt: Option<Prompt>,
    pub(super) is_help: bool,
    pub(super) message: String,
    /// The selected job; the first one if it is gone.
    selected: Option<Key>,
}

impl View {
    /// The jobs that are shown, in order.
    pub(super) fn jobs<'a>(&self, model: &'a Model) -> Vec<&'a Job> {
        let mut jobs: Vec<&Job> = model.jobs.iter().filter(|job| self.matches(job)).collect();
        let rank = |share: Option<f64>| share.unwrap_or(-1.0);
        match self.order {
            Order::Listed => {}
            Order::Name => jobs.sort_by(|a, b| a.id.cmp(&b.id)),
            Order::Class => jobs.sort_by_key(|job| !job.is_hp),
            // The interesting ones come first.
            Order::P99 => jobs.sort_by_key(|job| std::cmp::Reverse(job.latency.p99_ns)),
            Order::Share => jobs.sort_by(|a, b| rank(b.share).total_cmp(&rank(a.share))),
            Order::Use => jobs.sort_by(|a, b| rank(b.gpu_use).total_cmp(&rank(a.gpu_use))),
            Order::Memory => jobs.sort_by_key(|job| std::cmp::Reverse(job.memory_held)),
            Order::Launches => {
                jobs.sort_by(|a, b| rank(b.launches_per_s).total_cmp(&rank(a.launches_per_s)));
            }
        }
        if self.is_reversed {
            jobs.reverse();
        }
        jobs
    }

    /// The index of the selected job among those.
    pub(super) fn selected(&self, jobs: &[&Job]) -> usize {
        let selected = self.selected.as_ref();
        let mut places = jobs.iter();
        let place = places.position(|job| selected == Some(&key_of(job)));
        place.unwrap_or(0)
    }

    fn matches(&self, job: &Job) -> bool {
        let wanted = self.filter.to_lowercase();
        let class = class_of(job);
        [&job.id.to_lowercase(), class, &job.uid.to_string()]
            .iter()
            .any(|text| text.contains(&wanted))
    }

    pub(super) fn handle_key(&mut self, key: KeyEvent, model: &Model) -> Todo {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        if is_control && key.code == KeyCode::Char('c') {
            return Todo::Quit;
        }
        match self.prompt.take() {
            Some(prompt) => self.handle_answer(prompt, key.code),
            None => self.handle_command(key.code, model),
        }
    }

    fn handle_answer(&mut self, prompt: Prompt, key: KeyCode) -> Todo {
        match (prompt, key) {
            (Prompt::Stop { job, user }, KeyCode::Char('y' | 'Y')) => {
                let user = user.map(|user| format!("--user={user}"));
                let words = std::iter::once("stop".to_owned()).chain(user);
                return Todo::Run(words.chain(["--".to_owned(), job]).collect());
            }
            (Prompt::Stop { .. }, _) => "nothing was stopped".clone_into(&mut self.message),
            (_, KeyCode::Esc) => {}
            (Prompt::Filter(text), KeyCode::Enter) => self.filter = text,
            (Prompt::Set { job, line }, KeyCode::Enter) => {
                let words = line.split_whitespace().map(str::to_owned);
                let words: Vec<String> = words.collect();
                if !words.is_empty() {
                    let (first, last) = (vec!["set".to_owned()], vec!["--".to_owned(), job]);
                    return Todo::Run([first, words, last].concat());
                }
            }
            (Prompt::Filter(text), key) => self.prompt = Some(Prompt::Filter(typed(text, key))),
            (Prompt::Set { job, line }, key) => {
                let line = typed(line, key);
                self.prompt = Some(Prompt::Set { job, line });
            }
        }
        Todo::Nothing
    }

    fn handle_command(&mut self, key: KeyCode, model: &Model) -> Todo {
        if std::mem::take(&mut self.is_help) {
            return Todo::Nothing;
        }
        self.message.clear();
        let jobs = self.jobs(model);
        let place = self.selected(&jobs);
        let last = jobs.len().saturating_sub(1);
        let chosen = jobs.get(place).copied();
        let mut select = |place: usize| {
            self.selected = jobs.get(place).map(|job| key_of(job));
        };
        match key {
            KeyCode::Char('q') => return Todo::Quit,
            KeyCode::Char('r') => return Todo::Refresh,
            KeyCode::Up | KeyCode::Char('k') => select(place.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => select((place + 1).min(last)),
            KeyCode::PageUp => select(place.saturating_sub(10)),
            KeyCode::PageDown => select((place + 10).min(last)),
            KeyCode::Home => select(0),
            KeyCode::End => select(last),
            KeyCode::Char(',' | '<') => self.order = self.order.moved(-1),
            KeyCode::Char('.' | '>') => self.order = self.order.moved(1),
            KeyCode::Char('/') => self.is_reversed = !self.is_reversed,
            KeyCode::Char('f' | '\\') => self.prompt = Some(Prompt::Filter(self.filter.clone())),
            KeyCode::Esc => {
                self.filter.clear();
                self.selected = None;
            }
            KeyCode::Char('T' | 't') => {
                self.prompt = chosen.map(|job| Prompt::Stop {
                    job: job.id.clone(),
                    user: is_of_several(model, job).then_some(job.uid),
                });
            }
            KeyCode::Char('s') => match chosen {
                Some(job) if is_of_several(model, job) => {
                    self.message =
                        format!("several users have a job {}: nothing was changed", job.id);
                }
                Some(job) => {
                    self.prompt = Some(Prompt::Set {
                        job: job.id.clone(),
                        line: String::new(),
                    });
                }
                None => {}
            },
            KeyCode::Char('h' | '?') => self.is_help = true,
            _ => {}
        }
        Todo::Nothing
    }
}

fn is_of_several(model: &Model, job: &Job) -> bool {
    let mut others = model.jobs.iter();
    others.any(|other| other.id == job.id && other.uid != job.uid)
}

/// The class, as a short word.
pub(super) const fn class_of(job: &Job) -> &'static str {
    match job.is_hp {
        true => "high",
        false => "best",
    }
}

fn typed(mut line: String, key: KeyCode) -> String {
    match key {
        KeyCode::Char(c) if line.chars().count() < LINE_MAX => line.push(c),
        KeyCode::Backspace => drop(line.pop()),
        _ => {}
    }
    line
}

/// Limit on an input line, characters.
const LINE_MAX: usize = 200;
