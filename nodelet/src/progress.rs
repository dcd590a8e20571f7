//! What is under way, for whoever watches: a terminal, `systemctl status`, the cluster.

/// One piece of news.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress<'a> {
    /// A step begins.
    Step {
        /// Which one, from 1.
        number: usize,
        /// Of how many.
        total: usize,
        /// What it does.
        headline: &'a str,
    },
    /// What goes on before or between steps: staging, waiting.
    Note(&'a str),
    /// How far a long step is.
    Part {
        /// In hundredths.
        percent: u8,
        /// What it is doing.
        what: &'a str,
    },
}

/// Whoever watches.
pub type Tell<'a> = &'a (dyn Fn(Progress<'_>) + Send + Sync);
