//! Commands of the host, with an error that carries the command and its own words.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};

/// What a command said, and how it ended.
#[derive(Debug, Clone)]
pub struct Output {
    /// How it ended.
    pub status: ExitStatus,
    /// Standard output, with the last newline cut off.
    pub stdout: String,
    /// Standard error, with the last newline cut off.
    pub stderr: String,
}

impl Output {
    /// Whether it ended with code 0.
    pub fn success(&self) -> bool {
        self.status.success()
    }

    /// Exit code, or -1 when a signal ended it.
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or(-1)
    }

    /// Both streams, for messages.
    pub fn text(&self) -> String {
        let mut text = self.stdout.clone();
        if !self.stderr.is_empty() {
            let _ = write!(text, "{}{}", if text.is_empty() { "" } else { "\n" }, self.stderr);
        }
        text
    }
}

/// Runs a command to its end, whatever its exit code.
pub fn output(command: &mut Command, input: Option<&[u8]>, limit: Duration) -> Result<Output> {
    let shown = show(command);
    let mut child = command
        .stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| {
            format!("starting `{shown}`: is the program installed? `make setup` installs what is needed")
        })?;
    let writer = child.stdin.take().zip(input.map(<[u8]>::to_vec)).map(|(mut pipe, bytes)| {
        // A command that does not read all of its input is judged by its exit code, not by the broken pipe.
        thread::spawn(move || drop(pipe.write_all(&bytes)))
    });
    let stdout = drain(child.stdout.take());
    let stderr = drain(child.stderr.take());
    let start = Instant::now();
    let mut pause = 1;
    let status = loop {
        if let Some(status) = child.try_wait().with_context(|| format!("waiting for `{shown}`"))? {
            break status;
        }
        if start.elapsed() > limit {
            child.kill().with_context(|| format!("stopping `{shown}`"))?;
            child.wait().with_context(|| format!("waiting for `{shown}` after stopping it"))?;
            bail!(
                "`{shown}` was still running after {} s and was stopped.\n{}{}",
                limit.as_secs(),
                joined(stdout)?,
                joined(stderr)?
            );
        }
        thread::sleep(Duration::from_millis(pause));
        pause = (pause * 2).min(50);
    };
    if let Some(writer) = writer {
        writer.join().map_err(|_| anyhow!("the thread that feeds `{shown}` panicked"))?;
    }
    Ok(Output { status, stdout: joined(stdout)?, stderr: joined(stderr)? })
}

/// Runs a command that must succeed, and returns its standard output.
pub fn run(command: &mut Command) -> Result<String> {
    run_for(command, Duration::from_secs(2 * 60))
}

/// The same with a limit of one's own, for what is known to take long.
pub fn run_for(command: &mut Command, limit: Duration) -> Result<String> {
    let done = output(command, None, limit)?;
    if !done.success() {
        bail!("`{}` failed ({}):\n{}", show(command), done.status, done.text());
    }
    Ok(done.stdout)
}

/// `ip` of iproute2, split at spaces.
pub fn ip(arguments: &str) -> Result<String> {
    run(Command::new("ip").args(arguments.split_whitespace()))
}

/// A command as a person would type it; of a whole script only the beginning.
pub fn show(command: &Command) -> String {
    let mut text = command.get_program().to_string_lossy().into_owned();
    for argument in command.get_args() {
        let argument = argument.to_string_lossy();
        let short: String = argument.chars().take(100).take_while(|letter| *letter != '\n').collect();
        let dots = if short.len() < argument.len() { "…" } else { "" };
        let _ = if argument.is_empty() || argument.contains(char::is_whitespace) {
            write!(text, " '{short}{dots}'")
        } else {
            write!(text, " {short}{dots}")
        };
    }
    text
}

type Reader = thread::JoinHandle<std::io::Result<Vec<u8>>>;

fn drain(stream: Option<impl Read + Send + 'static>) -> Reader {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut stream) = stream {
            stream.read_to_end(&mut bytes)?;
        }
        Ok(bytes)
    })
}

fn joined(reader: Reader) -> Result<String> {
    let bytes = reader
        .join()
        .map_err(|_| anyhow!("the thread that reads a command's output panicked"))?
        .context("reading a command's output")?;
    let text = String::from_utf8_lossy(&bytes);
    Ok(text.strip_suffix('\n').unwrap_or(&text).to_owned())
}
