//! Short questions over HTTP to daemons of this host.

use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

/// A daemon of the same host that hasn't answered by then won't.
const LIMIT: Duration = Duration::from_secs(5);

/// An answer: the status code and the body.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    /// Such as 200.
    pub status: u16,
    /// What was said.
    pub body: String,
}

/// Asks an address such as `http://127.0.0.1:10248/healthz`.
pub async fn get(address: &str) -> io::Result<Answer> {
    let rest = address.strip_prefix("http://").ok_or_else(|| io::Error::other("only http:// can be asked"))?;
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let host = if host.contains(':') { host.to_owned() } else { format!("{host}:80") };
    limited(async { ask(TcpStream::connect(&host).await?, &host, path).await }).await
}

/// Asks a daemon that listens on a socket.
pub async fn get_from_socket(socket: &str, path: &str) -> io::Result<Answer> {
    limited(async { ask(UnixStream::connect(socket).await?, "localhost", path).await }).await
}

pub(crate) async fn limited<T>(question: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    match tokio::time::timeout(LIMIT, question).await {
        Ok(answer) => answer,
        Err(_) => Err(io::Error::other(format!("no answer within {} s", LIMIT.as_secs()))),
    }
}

/// HTTP/1.0: the answer is whole when the connection closes.
async fn ask(mut stream: impl AsyncRead + AsyncWrite + Unpin, host: &str, path: &str) -> io::Result<Answer> {
    stream.write_all(format!("GET /{path} HTTP/1.0\r\nHost: {host}\r\n\r\n").as_bytes()).await?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await?;
    let text = String::from_utf8_lossy(&bytes);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    let status = status.ok_or_else(|| io::Error::other("the answer is not HTTP"))?;
    Ok(Answer { status, body: body.to_owned() })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn an_answer_is_read() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}/healthz", listener.local_addr().unwrap());
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut asked = [0; 64];
            let length = stream.read(&mut asked).await.unwrap();
            stream.write_all(b"HTTP/1.0 503 Unavailable\r\nX: y\r\n\r\nnot yet").await.unwrap();
            String::from_utf8_lossy(&asked[..length]).into_owned()
        });
        assert_eq!(get(&address).await.unwrap(), Answer { status: 503, body: "not yet".into() });
        assert!(server.await.unwrap().starts_with("GET /healthz HTTP/1.0\r\n"));
        assert!(get("https://127.0.0.1/").await.is_err());
    }
}
