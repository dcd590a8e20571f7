//! How the demos speak: numbered steps with their time, commands with their output.

use std::io::{IsTerminal, Write, stdout};
use std::time::Instant;

use anyhow::Result;

use crate::Node;

/// Longer lines of output go on in the next one.
const WIDTH: usize = 112;
/// Where they go on: below the values of `nodelet status`.
const INDENT: usize = 14;

/// Where the demo is.
#[derive(Debug)]
pub(crate) struct Stage {
    start: Instant,
    number: u32,
    colour: bool,
}

impl Stage {
    pub(crate) fn new() -> Self {
        let colour = stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Self { start: Instant::now(), number: 0, colour }
    }

    /// Begins the next step.
    pub(crate) fn step(&mut self, title: &str) {
        self.number += 1;
        let seconds = self.start.elapsed().as_secs_f32();
        println!("\n{}", self.paint("1", &format!("[{}] {title}", self.number)) + &format!("  ({seconds:.1} s)"));
    }

    /// Says one thing about the step.
    pub(crate) fn say(&self, line: &str) {
        for line in wrapped(line, 0) {
            println!("    {}", self.paint("2", &line));
        }
    }

    /// Runs a script that must succeed in the node, and shows it with what it prints.
    pub(crate) fn show(&self, node: &Node, script: &str) -> Result<()> {
        self.command(node, script);
        print(&node.run_sh(script)?);
        Ok(())
    }

    /// The same for a command whose exit code says something.
    pub(crate) fn look(&self, node: &Node, script: &str) -> Result<()> {
        self.command(node, script);
        print(&node.sh(script)?.text());
        Ok(())
    }

    /// Shows a command that is run by other means.
    pub(crate) fn command(&self, node: &Node, script: &str) {
        println!("    {}", self.paint("36", &format!("{}# {script}", node.name())));
        stdout().flush().ok();
    }

    /// Shows a command of the host with what it printed.
    pub(crate) fn told(&self, line: &str, output: &str) {
        println!("    {}", self.paint("36", &format!("$ {line}")));
        print(output);
        stdout().flush().ok();
    }

    /// A line of something that is watched, with the time since the watching began.
    pub(crate) fn seen(&self, since: Instant, line: &str) {
        let mut time = format!("{:5.1} s", since.elapsed().as_secs_f32());
        for piece in wrapped(line, INDENT) {
            println!("    {} {piece}", self.paint("2", &time));
            time = " ".repeat(time.len());
        }
        stdout().flush().ok();
    }

    /// Ends the demo.
    pub(crate) fn end(&self, what: &str) {
        println!("\nThat was {what}, in {:.0} s. Nothing of it is left.", self.start.elapsed().as_secs_f32());
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.colour { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}

fn print(output: &str) {
    for line in output.lines().flat_map(|line| wrapped(line, INDENT)) {
        println!("    {line}");
    }
}

/// A line in pieces that fit, cut between words.
fn wrapped(line: &str, indent: usize) -> Vec<String> {
    let mut pieces = vec![String::new()];
    let mut length = 0;
    for word in line.split_inclusive(' ') {
        let size = word.chars().count();
        if length > indent && length + size > WIDTH {
            pieces.push(" ".repeat(indent));
            length = indent;
        }
        length += size;
        if let Some(piece) = pieces.last_mut() {
            piece.push_str(word);
        }
    }
    pieces.iter().map(|piece| piece.trim_end().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_go_on_below_their_value() {
        assert_eq!(wrapped("  a  b", INDENT), ["  a  b"]);
        let pieces = wrapped(&format!("   State: {}", "word ".repeat(50)), INDENT);
        assert!(pieces.len() == 3 && pieces.iter().all(|piece| piece.len() <= WIDTH), "{pieces:?}");
        assert!(pieces[1].starts_with("              word"), "{pieces:?}");
        assert_eq!(pieces.iter().map(|piece| piece.matches("word").count()).sum::<usize>(), 50);
    }
}
