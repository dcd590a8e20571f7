//! Gates that ask Prometheus.

use super::Asker;
use super::cel::{QUOTED, Question, Sample, Subject, short};
use super::web::Address;
use anyhow::{Context, bail};
use nodelet_api::objects::PrometheusGate;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::collections::BTreeMap;

/// Passed when the expression that is left is true of what the query gives now.
pub(super) async fn ask(asker: &Asker, gate: &PrometheusGate) -> anyhow::Result<Option<Question>> {
    let (status, body) = Address::from(gate).post(asker, "/api/v1/query", &[("query", &gate.query)]).await?;
    let samples = samples(status, &body).with_context(|| format!("asking {}", short(&gate.url, QUOTED)))?;
    Ok(Some(Question { expression: gate.cel.clone(), subject: Subject::Samples(samples) }))
}

/// An answer, as the HTTP API of Prometheus describes it. Of what is not looked at nothing is kept.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    status: String,
    error_type: Option<String>,
    error: Option<String>,
    data: Option<Data>,
}

#[derive(Deserialize)]
#[serde(tag = "resultType", content = "result", rename_all = "lowercase")]
enum Data {
    Vector(Vec<Entry>),
    Scalar(Pair),
    Matrix(IgnoredAny),
    String(IgnoredAny),
}

#[derive(Deserialize)]
struct Entry {
    #[serde(default)]
    metric: BTreeMap<String, String>,
    value: Pair,
}

/// A time and a number, which is a text.
#[derive(Deserialize)]
struct Pair(#[allow(dead_code, reason = "it is there")] IgnoredAny, String);

/// The samples in an answer.
fn samples(status: u16, body: &[u8]) -> anyhow::Result<Vec<Sample>> {
    let Ok(answer) = serde_json::from_slice::<Answer>(body) else {
        bail!("it answers with {status}, and not as Prometheus does");
    };
    if answer.status != "success" {
        let word = |word: Option<String>| word.unwrap_or_else(|| "no reason".to_owned());
        bail!("Prometheus says {}: {}", word(answer.error_type), word(answer.error));
    }
    let kind = match answer.data.context("it answers without data")? {
        Data::Vector(entries) => {
            let sample = |entry: Entry| Sample { metric: entry.metric, value: entry.value.1 };
            return Ok(entries.into_iter().map(sample).collect());
        }
        Data::Scalar(pair) => return Ok(vec![Sample { metric: BTreeMap::new(), value: pair.1 }]),
        Data::Matrix(_) => "matrix",
        Data::String(_) => "string",
    };
    bail!("the query gives a {kind}: write one that gives an instant vector or a number")
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
        assert!(
            data(r#"{"resultType": "string", "result": [1, "a"]}"#)
                .unwrap_err()
                .starts_with("the query gives a string")
        );
        let odd = Err("it answers with 200, and not as Prometheus does".to_owned());
        assert_eq!(data(r#"{"resultType": "vector", "result": [{"metric": {}, "value": [1]}]}"#), odd);
        assert_eq!(read("<html>"), Err("it answers with 200, and not as Prometheus does".to_owned()));
    }
}
