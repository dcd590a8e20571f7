//! Gates that ask an address.

use super::Asker;
use super::cel::{QUOTED, Question, short};
use super::web::Address;
use anyhow::ensure;
use nodelet_api::objects::HttpGate;

/// Passed when the address answers with the status. No expression is left.
pub(super) async fn ask(asker: &Asker, gate: &HttpGate) -> anyhow::Result<Option<Question>> {
    let status = Address::from(gate).get(asker).await?;
    ensure!(status == gate.status, "{} answers with {status}, not {}", short(&gate.url, QUOTED), gate.status);
    Ok(None)
}
