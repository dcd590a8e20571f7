//! What the kubelet asks a pod: whether the program is alive, and whether it may be counted on.
//!
//! `GET /healthz` is answered by the thread that also decides and writes: the answer itself says that it turns. `GET
//! /readyz` says whether everything was listed once; one that waits to lead is ready, too. Nothing else is served, and
//! nothing is told that is worth protecting, so it is plain HTTP: this little of it needs no library.

use anyhow::Context;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// A request's header is shorter than that; what is longer is not the kubelet.
const LONGEST_REQUEST: usize = 4096;
/// How long one request may take, from connecting to the answer's end.
const LIMIT: Duration = Duration::from_secs(5);
/// How many requests are looked at together: a crowd must not use up the process's files.
const CROWD: usize = 32;
/// A pause after a connection that could not be taken, so that the loop leaves the processor alone.
const PAUSE: Duration = Duration::from_millis(100);

/// The listener, or none where it is turned off.
#[derive(Debug)]
pub struct Probes(Option<TcpListener>);

impl Probes {
    /// Listens at an address such as `0.0.0.0:8081`. An empty one turns probes off.
    pub async fn listen(address: &str) -> anyhow::Result<Self> {
        if address.is_empty() {
            return Ok(Self(None));
        }
        let what = || format!("listening for probes at {address:?}; --health-address sets it, and empty turns it off");
        Ok(Self(Some(TcpListener::bind(address).await.with_context(what)?)))
    }

    /// Where it listens, if it does.
    pub fn address(&self) -> Option<SocketAddr> {
        self.0.as_ref().and_then(|listener| listener.local_addr().ok())
    }

    /// Answers for ever. Ready from the moment at which `complete` is true.
    pub async fn serve(self, complete: impl Future<Output = bool>) {
        let Some(listener) = self.0 else {
            return std::future::pending().await;
        };
        let ready = Arc::new(AtomicBool::new(false));
        let note = async { ready.store(complete.await, Ordering::Relaxed) };
        tokio::join!(note, accept(&listener, &ready));
    }
}

async fn accept(listener: &TcpListener, ready: &Arc<AtomicBool>) {
    let places = Arc::new(Semaphore::new(CROWD));
    loop {
        // Never closed, so there is always a place in the end.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, _)) => {
                let ready = Arc::clone(ready);
                tokio::spawn(async move {
                    // Whoever asked and went away needs no answer.
                    let _ = tokio::time::timeout(LIMIT, answer(stream, &ready)).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a probe could not connect");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

async fn answer(mut stream: TcpStream, ready: &AtomicBool) -> std::io::Result<()> {
    let mut request = Vec::new();
    let mut part = [0; 512];
    // All of the header is read: closing with something unread would reset the connection under the answer.
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        let read = stream.read(&mut part).await?;
        if read == 0 || request.len() + read > LONGEST_REQUEST {
            return Ok(());
        }
        request.extend_from_slice(&part[..read]);
    }
    let (status, body) = judge(&request, ready.load(Ordering::Relaxed));
    let text = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(text.as_bytes()).await?;
    stream.shutdown().await
}

/// Status line and text.
fn judge(request: &[u8], ready: bool) -> (&'static str, &'static str) {
    let line = request.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let mut words = line.split(|byte| *byte == b' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = target.split(|byte| *byte == b'?').next().unwrap_or_default();
    match (method, path) {
        (b"GET", b"/healthz") => ("200 OK", "ok\n"),
        (b"GET", b"/readyz") if ready => ("200 OK", "ok\n"),
        (b"GET", b"/readyz") => ("503 Service Unavailable", "not everything was listed yet\n"),
        (_, b"/healthz" | b"/readyz") => ("405 Method Not Allowed", "only GET\n"),
        _ => ("404 Not Found", "only /healthz and /readyz\n"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use tokio::sync::oneshot;

    async fn ask(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        text
    }

    async fn get(address: SocketAddr, path: &str) -> String {
        ask(address, &format!("GET {path} HTTP/1.1\r\nHost: x\r\nUser-Agent: kube-probe/1.35\r\n\r\n")).await
    }

    #[tokio::test]
    async fn alive_at_once_and_ready_when_everything_was_listed() {
        let probes = Probes::listen("127.0.0.1:0").await.unwrap();
        let address = probes.address().unwrap();
        let (complete, completed) = oneshot::channel();
        let serving = tokio::spawn(probes.serve(async { completed.await.unwrap() }));
        // One that connects and says nothing must not keep others waiting.
        let _silent = TcpStream::connect(address).await.unwrap();
        assert!(get(address, "/healthz").await.starts_with("HTTP/1.1 200 OK\r\n"));
        assert!(get(address, "/readyz").await.starts_with("HTTP/1.1 503 "));
        complete.send(true).unwrap();
        while !get(address, "/readyz?verbose").await.starts_with("HTTP/1.1 200 OK\r\n") {
            tokio::task::yield_now().await;
        }
        assert!(get(address, "/readyz").await.ends_with("\r\nContent-Length: 3\r\nConnection: close\r\n\r\nok\n"));
        assert!(!serving.is_finished());
    }

    #[tokio::test]
    async fn nothing_else_is_served() {
        let probes = Probes::listen("127.0.0.1:0").await.unwrap();
        let address = probes.address().unwrap();
        tokio::spawn(probes.serve(std::future::pending()));
        for path in ["/", "/healthz/", "/metrics", "*", ""] {
            let text = get(address, path).await;
            assert!(text.starts_with("HTTP/1.1 404 "), "{path}: {text}");
        }
        let text = ask(address, "POST /healthz HTTP/1.1\r\nContent-Length: 0\r\n\r\n").await;
        assert!(text.starts_with("HTTP/1.1 405 "), "{text}");
        assert_eq!(ask(address, &format!("GET /{}", "x".repeat(LONGEST_REQUEST))).await, "");
    }

    #[tokio::test]
    async fn a_list_that_ended_is_never_ready() {
        let probes = Probes::listen("127.0.0.1:0").await.unwrap();
        let address = probes.address().unwrap();
        tokio::spawn(probes.serve(async { false }));
        assert!(get(address, "/readyz").await.starts_with("HTTP/1.1 503 "));
        assert!(get(address, "/healthz").await.starts_with("HTTP/1.1 200 "));
    }

    #[tokio::test]
    async fn off_or_taken() {
        assert_eq!(Probes::listen("").await.unwrap().address(), None);
        let first = Probes::listen("127.0.0.1:0").await.unwrap();
        let taken = first.address().unwrap().to_string();
        let error = format!("{:#}", Probes::listen(&taken).await.unwrap_err());
        assert!(error.contains("--health-address"), "{error}");
    }
}
