//! Progress for people: a bar on a terminal, plain lines elsewhere.

use crate::progress::Progress;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::Duration;

/// Where progress is shown.
pub(super) enum Show {
    /// A bar below the lines of what is done.
    Bar(ProgressBar),
    /// Lines alone.
    Lines,
    /// Nowhere: the output is for a program.
    Nowhere,
}

impl Show {
    /// As fits what standard output is.
    pub(super) fn new(for_program: bool) -> Self {
        if for_program {
            return Self::Nowhere;
        }
        if !std::io::stdout().is_terminal() {
            return Self::Lines;
        }
        let bar = ProgressBar::new(100);
        let style = ProgressStyle::with_template("{spinner} [{bar:30}] {percent:>3} % {wide_msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
        bar.enable_steady_tick(Duration::from_millis(120));
        Self::Bar(bar)
    }

    /// Shows one piece of news.
    pub(super) fn tell(&self, news: Progress<'_>) {
        let line = match news {
            Progress::Step { number, total, headline } => format!("[{number}/{total}] {headline}"),
            Progress::Note(note) => format!("... {note}"),
            Progress::Part { percent, what } => {
                if let Self::Bar(bar) = self {
                    bar.set_position(percent.into());
                    bar.set_message(what.to_owned());
                }
                return;
            }
        };
        match self {
            Self::Bar(bar) => {
                bar.set_position(0);
                bar.println(&line);
                bar.set_message(line);
            }
            Self::Lines => println!("{line}"),
            Self::Nowhere => {}
        }
    }

    /// Takes the bar away.
    pub(super) fn end(&self) {
        if let Self::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}
