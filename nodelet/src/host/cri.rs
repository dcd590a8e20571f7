//! One question to a container runtime: is it ready? The Container Runtime Interface is gRPC; for a single call with
//! an empty message HTTP/2 and a few bytes of protocol buffers are all that is needed.

use super::http::limited;
use h2::RecvStream;
use http::Request;
use std::io;
use tokio::net::UnixStream;

/// Asks the runtime behind a socket for its status. The error says what it lacks.
pub async fn ready(socket: &str) -> io::Result<()> {
    limited(async {
        let message = call(socket, "/runtime.v1.RuntimeService/Status").await?;
        match runtime_ready(&message) {
            Some(Condition { ready: true, .. }) => Ok(()),
            Some(Condition { reason, .. }) => Err(io::Error::other(format!("the runtime is not ready: {reason}"))),
            None => Err(io::Error::other("the runtime doesn't say whether it is ready")),
        }
    })
    .await
}

async fn call(socket: &str, method: &str) -> io::Result<Vec<u8>> {
    let (client, connection) =
        h2::client::handshake(UnixStream::connect(socket).await?).await.map_err(io::Error::other)?;
    let connection = tokio::spawn(connection);
    let result = exchange(client, method).await;
    connection.abort();
    result
}

async fn exchange(client: h2::client::SendRequest<bytes::Bytes>, method: &str) -> io::Result<Vec<u8>> {
    let request = Request::post(format!("http://localhost{method}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(())
        .map_err(io::Error::other)?;
    let mut client = client.ready().await.map_err(io::Error::other)?;
    let (response, mut send) = client.send_request(request, false).map_err(io::Error::other)?;
    // Not compressed, no bytes.
    send.send_data(bytes::Bytes::from_static(&[0; 5]), true).map_err(io::Error::other)?;
    let response = response.await.map_err(io::Error::other)?;
    let early = grpc_error(response.headers());
    let mut body = response.into_body();
    let bytes = receive(&mut body).await?;
    let trailers = body.trailers().await.map_err(io::Error::other)?;
    match early.or_else(|| trailers.as_ref().and_then(grpc_error)) {
        Some(error) => Err(io::Error::other(error)),
        None => Ok(bytes.get(5..).unwrap_or_default().to_vec()),
    }
}

async fn receive(body: &mut RecvStream) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    while let Some(chunk) = body.data().await {
        let chunk = chunk.map_err(io::Error::other)?;
        body.flow_control().release_capacity(chunk.len()).map_err(io::Error::other)?;
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

fn grpc_error(headers: &http::HeaderMap) -> Option<String> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let status = text("grpc-status").filter(|status| *status != "0")?;
    Some(format!("the runtime answers with gRPC status {status}: {}", text("grpc-message").unwrap_or_default()))
}

struct Condition {
    ready: bool,
    reason: String,
}

/// `RuntimeReady` among the conditions of a `StatusResponse`: its field 1 is the status, whose fields 1 are conditions
/// of type (1), status (2), reason (3) and message (4).
fn runtime_ready(response: &[u8]) -> Option<Condition> {
    for condition in bytes_of(bytes_of(response, 1).next()?, 1) {
        if bytes_of(condition, 1).next() == Some(b"RuntimeReady") {
            let words: Vec<_> = [3, 4].iter().filter_map(|field| bytes_of(condition, *field).next()).collect();
            let reason = words.iter().map(|word| String::from_utf8_lossy(word)).collect::<Vec<_>>().join(": ");
            let ready = fields(condition).any(|(number, value)| number == 2 && matches!(value, Value::Number(1)));
            return Some(Condition { ready, reason });
        }
    }
    None
}

enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

fn bytes_of(message: &[u8], wanted: u64) -> impl Iterator<Item = &[u8]> {
    fields(message).filter_map(move |(number, value)| match value {
        Value::Bytes(bytes) if number == wanted => Some(bytes),
        _ => None,
    })
}

/// The fields of a message; it ends where something isn't understood.
fn fields(mut rest: &[u8]) -> impl Iterator<Item = (u64, Value<'_>)> {
    std::iter::from_fn(move || {
        let key = number(&mut rest)?;
        let value = match key & 7 {
            0 => Value::Number(number(&mut rest)?),
            2 => {
                let length = usize::try_from(number(&mut rest)?).ok()?;
                let (bytes, after) = rest.split_at_checked(length)?;
                rest = after;
                Value::Bytes(bytes)
            }
            _ => return None,
        };
        Some((key >> 3, value))
    })
}

/// A number of seven bits a byte, least first.
fn number(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let mut message = vec![number << 3 | 2, u8::try_from(bytes.len()).unwrap()];
        message.extend_from_slice(bytes);
        message
    }

    #[test]
    fn readiness_is_found_among_the_conditions() {
        let network = [field(1, b"NetworkReady"), vec![0x10, 0]].concat();
        let runtime = |ready: u8| [field(1, b"RuntimeReady"), vec![0x10, ready], field(3, b"Why")].concat();
        let status = |ready| field(1, &[field(1, &network), field(1, &runtime(ready))].concat());
        assert!(runtime_ready(&status(1)).unwrap().ready);
        let not = runtime_ready(&status(0)).unwrap();
        assert!(!not.ready && not.reason == "Why");
        assert!(runtime_ready(&field(1, &field(1, &network))).is_none());
        assert!(runtime_ready(&[0xff; 20]).is_none(), "nonsense is no answer");
    }
}
