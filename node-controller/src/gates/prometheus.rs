//! Gates that ask Prometheus.

use super::Asker;
use super::cel::{self, Question, Sample, Subject};
use super::web::Address;
use anyhow::{Context, bail};
use nodelet_api::objects::PrometheusGate;
use serde_json::Value;
use std::collections::BTreeMap;

/// Passed when the expression is true of what the query gives now.
pub(super) async fn ask(asker: &Asker, gate: &PrometheusGate) -> anyhow::Result<()> {
    let (status, body) = Address::from(gate).post(asker, "/api/v1/query", &[("query", &gate.query)]).await?;
    let samples = samples(status, &body).with_context(|| format!("asking {}", gate.url))?;
    cel::evaluate(asker, &Question { expression: gate.cel.clone(), subject: Subject::Samples(samples) }).await
}

/// The samples in an answer, as the HTTP API of Prometheus describes it.
fn samples(status: u16, body: &[u8]) -> anyhow::Result<Vec<Sample>> {
    let Ok(answer) = serde_json::from_slice::<Value>(body) else {
        bail!("it answers with {status}, and not as Prometheus does");
    };
    if answer["status"] != "success" {
        let word = |name: &str| answer[name].as_str().unwrap_or("no reason").to_owned();
        bail!("Prometheus says {}: {}", word("errorType"), word("error"));
    }
    let data = &answer["data"];
    let sample = |metric: &Value, pair: &Value| {
        let metric: BTreeMap<String, String> = serde_json::from_value(metric.clone()).unwrap_or_default();
        let value = pair[1].as_str().context("a sample without a value")?.to_owned();
        Ok(Sample { metric, value })
    };
    match (data["resultType"].as_str().unwrap_or_default(), data["result"].as_array()) {
        ("vector", Some(entries)) => entries.iter().map(|entry| sample(&entry["metric"], &entry["value"])).collect(),
        ("scalar", Some(_)) => Ok(vec![sample(&Value::Null, &data["result"])?]),
        (kind, _) => bail!("the query gives a {kind}: write one that gives an instant vector or a number"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn read(text: &str) -> Result<Vec<(usize, String)>, String> {
        let read = samples(200, text.as_bytes()).map_err(|error| error.to_string())?;
        Ok(read.into_iter().map(|sample| (sample.metric.len(), sample.value)).collect())
    }

    #[test]
    fn answers_are_samples_or_a_reason() {
        let data = |data: &str| read(&format!(r#"{{"status": "success", "data": {data}}}"#));
        let vector = r#"{"resultType": "vector", "result": [
            {"metric": {"a": "b"}, "value": [1700000000.1, "3"]}, {"metric": {}, "value": [1, "NaN"]}]}"#;
        assert_eq!(data(vector), Ok(vec![(1, "3".to_owned()), (0, "NaN".to_owned())]));
        assert_eq!(data(r#"{"resultType": "vector", "result": []}"#), Ok(Vec::new()));
        assert_eq!(data(r#"{"resultType": "scalar", "result": [1, "2.5"]}"#), Ok(vec![(0, "2.5".to_owned())]));
        assert!(data(r#"{"resultType": "matrix", "result": []}"#).unwrap_err().starts_with("the query gives a matrix"));
        assert_eq!(
            read(r#"{"status": "error", "errorType": "bad_data", "error": "1:3: parse error: unexpected <op:+>"}"#),
            Err("Prometheus says bad_data: 1:3: parse error: unexpected <op:+>".to_owned())
        );
        assert_eq!(read("<html>"), Err("it answers with 200, and not as Prometheus does".to_owned()));
    }
}
