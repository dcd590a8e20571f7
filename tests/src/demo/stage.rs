//! How the demo speaks: numbered steps with their time, commands with their output.

use std::io::{IsTerminal, stdout};
use std::time::Instant;

use anyhow::Result;

use crate::Node;

/// Where the demo is.
#[derive(Debug)]
pub(super) struct Stage {
    start: Instant,
    number: u32,
    colour: bool,
}

impl Stage {
    pub(super) fn new() -> Self {
        let colour = stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Self { start: Instant::now(), number: 0, colour }
    }

    /// Begins the next step.
    pub(super) fn step(&mut self, title: &str) {
        self.number += 1;
        let seconds = self.start.elapsed().as_secs_f32();
        println!("\n{}", self.paint("1", &format!("[{}] {title}", self.number)) + &format!("  ({seconds:.1} s)"));
    }

    /// Says one thing about the step.
    pub(super) fn say(&self, line: &str) {
        println!("    {}", self.paint("2", line));
    }

    /// Runs a script that must succeed in the node, and shows it with what it prints.
    pub(super) fn show(&self, node: &Node, script: &str) -> Result<()> {
        println!("    {}", self.paint("36", &format!("{}# {script}", node.name())));
        for line in node.run_sh(script)?.lines() {
            println!("    {line}");
        }
        Ok(())
    }

    /// Ends the demo.
    pub(super) fn end(&self) {
        println!(
            "\nThat was nodelet on one host, in {:.0} s. Nothing of it is left.",
            self.start.elapsed().as_secs_f32()
        );
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.colour { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}
