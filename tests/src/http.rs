//! A file server on the bridge's address, for repositories that can go away in the middle of a test.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

/// A client that says nothing for so long is forgotten.
const CLIENT_LIMIT: Duration = Duration::from_secs(30);

/// Serves a directory by GET and HEAD until it is dropped.
#[derive(Debug)]
pub struct FileServer {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    requests: Arc<Mutex<Vec<String>>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl FileServer {
    /// Listens on a free port of this address (use the slot's gateway, which nodes reach).
    pub fn start(address: Ipv4Addr, root: impl Into<PathBuf>) -> Result<Self> {
        let listener = TcpListener::bind((address, 0)).with_context(|| format!("listening on {address}"))?;
        let address = listener.local_addr().context("asking for the port")?;
        let stop = Arc::new(AtomicBool::new(false));
        let requests = Arc::new(Mutex::new(Vec::new()));
        let root = root.into();
        let (stopped, log) = (Arc::clone(&stop), Arc::clone(&requests));
        let thread = thread::spawn(move || {
            for client in listener.incoming() {
                if stopped.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(client) = client else { continue };
                let (root, log) = (root.clone(), Arc::clone(&log));
                // One short-lived thread for each client: a client that hangs up early is its own affair.
                thread::spawn(move || answer(client, &root, &log).ok());
            }
        });
        Ok(Self { address, stop, requests, thread: Some(thread) })
    }

    /// Where clients find the directory, without a slash at the end.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The paths asked for so far, in order.
    pub fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for FileServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // The thread sits in accept(): a visit wakes it up. Where its address is gone there are no visits, and it would be
        // waited for in vain.
        let visited = TcpStream::connect_timeout(&self.address, Duration::from_secs(1)).is_ok();
        if let Some(thread) = self.thread.take().filter(|_| visited) {
            thread.join().ok();
        }
    }
}

fn answer(client: TcpStream, root: &Path, log: &Mutex<Vec<String>>) -> io::Result<()> {
    client.set_read_timeout(Some(CLIENT_LIMIT))?;
    let mut reader = BufReader::new(client.try_clone()?);
    let mut client = client;
    let mut request = String::new();
    reader.read_line(&mut request)?;
    loop {
        let mut header = String::new();
        if reader.read_line(&mut header)? == 0 || header.trim().is_empty() {
            break;
        }
    }
    let mut words = request.split_whitespace();
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    log.lock().unwrap_or_else(PoisonError::into_inner).push(path.to_owned());
    let file = resolve(root, path).filter(|_| matches!(method, "GET" | "HEAD"));
    let Some(file) = file else {
        return client.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    };
    let length = fs::metadata(&file)?.len();
    write!(client, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n")?;
    if method == "GET" {
        io::copy(&mut File::open(&file)?, &mut client)?;
    }
    Ok(())
}

/// The file below `root` that a request means; nothing for what leads out of it.
fn resolve(root: &Path, path: &str) -> Option<PathBuf> {
    let path = path.split('?').next()?;
    let decoded = decode(path.trim_start_matches('/'))?;
    let clean = Path::new(&decoded).components().all(|part| matches!(part, Component::Normal(_)));
    let file = root.join(decoded);
    (clean && file.is_file()).then_some(file)
}

/// Undoes percent-encoding: apt writes `+` and `~` in file names that way.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        if *first == b'%' {
            let code = std::str::from_utf8(tail.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(code, 16).ok()?);
            rest = &tail[2..];
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn leads_nowhere_but_below_the_root() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a+b"), "x").unwrap();
        assert!(resolve(dir.path(), "/a%2bb").is_some());
        assert!(resolve(dir.path(), "/a%2bb?x=1").is_some());
        for bad in ["/../etc/passwd", "/%2e%2e/etc/passwd", "/", "/missing", "/a%2"] {
            assert!(resolve(dir.path(), bad).is_none(), "{bad}");
        }
    }
}
