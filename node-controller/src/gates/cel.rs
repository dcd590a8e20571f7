//! Expressions in CEL, and what they say of an object or of samples.
//!
//! Who may edit a set may write them, and a few words of CEL can ask for more time or memory than a machine has. The
//! interpreter knows no bounds, and a thread can't be ended: so an expression is evaluated in a process of its own, this
//! program once more, which is ended when it takes too much of either.

use anyhow::{Context, bail};
use cel::common::ast::Expr;
use cel::{ExecutionError, IdedExpr, Program, Value as Cel};
use nix::sys::resource::{Resource, setrlimit};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::io::{Read as _, Write as _};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::sync::Semaphore;

/// How long an evaluation may take. The usual one takes milliseconds, most of them for the process.
const LIMIT: Duration = Duration::from_secs(2);
/// How much memory it may take, in bytes: more than enough for an object of the largest size that etcd keeps.
const MEMORY: u64 = 64 << 20;
/// How long one waits for a place to run.
const PLACE_LIMIT: Duration = Duration::from_secs(3);
/// As many may run at once: together they must leave most of what config/default gives the controller.
pub(super) const AT_ONCE: usize = 4;
/// As many values are shown when an expression is false.
const SHOWN: usize = 4;
/// As many characters of a value, or of what the interpreter says, are shown.
const LENGTH: usize = 100;
/// As many of an expression or an address.
pub(super) const QUOTED: usize = 200;

/// What is to be evaluated.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Question {
    pub(super) expression: String,
    pub(super) subject: Subject,
}

/// What the expression speaks of.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Subject {
    /// `object`.
    Object(Value),
    /// `value`, the first one's number, and `result`, all of them.
    Samples(Vec<Sample>),
}

/// A sample of Prometheus.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Sample {
    pub(super) metric: BTreeMap<String, String>,
    /// As text: JSON has no `NaN` and no `+Inf`.
    pub(super) value: String,
}

impl Sample {
    fn number(&self) -> f64 {
        self.value.parse().unwrap_or(f64::NAN)
    }
}

/// Evaluates; an error is the sentence that says why the answer is not `true`. `None` when there is no place for it now.
pub(super) async fn evaluate(places: &Semaphore, question: &Question) -> Option<anyhow::Result<()>> {
    let _place = tokio::time::timeout(PLACE_LIMIT, places.acquire()).await.ok()?;
    Some(evaluate_now(question).await)
}

async fn evaluate_now(question: &Question) -> anyhow::Result<()> {
    // In short, so that what is wrong with it is not cut off.
    let expression = short(&question.expression, QUOTED);
    let answered = tokio::time::timeout(LIMIT, ask_process(question)).await;
    let answered = answered
        .with_context(|| format!("{expression} was not evaluated in {} s: make it simpler", LIMIT.as_secs()))?;
    answered.with_context(|| format!("{expression} could not be evaluated"))?.map_err(anyhow::Error::msg)
}

async fn ask_process(question: &Question) -> anyhow::Result<Result<(), String>> {
    // By this way also when the file was replaced meanwhile. Without the environment, which may name credentials.
    let mut child = Command::new("/proc/self/exe")
        .arg("evaluate")
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .context("starting a process for it")?;
    let mut input = child.stdin.take().context("the process has no input")?;
    let text = serde_json::to_vec(question).context("writing the question")?;
    // One that ends early says why by how it ends.
    let _ = input.write_all(&text).await;
    drop(input);
    let output = child.wait_with_output().await.context("waiting for the process")?;
    if !output.status.success() {
        bail!("it took more time or memory than it may ({}): make it simpler", output.status);
    }
    serde_json::from_slice(&output.stdout).context("reading the answer")
}

/// The other side of it: reads a question from the standard input and writes the answer to the standard output.
pub(crate) fn serve() -> anyhow::Result<()> {
    // What is ended for its memory is no crash that anybody wants to look into, and it may hold what is nobody's business.
    setrlimit(Resource::RLIMIT_CORE, 0, 0).context("forbidding a dump")?;
    setrlimit(Resource::RLIMIT_DATA, MEMORY, MEMORY).context("limiting the memory")?;
    setrlimit(Resource::RLIMIT_CPU, LIMIT.as_secs(), LIMIT.as_secs()).context("limiting the time")?;
    let mut text = Vec::new();
    std::io::stdin().read_to_end(&mut text).context("reading the question")?;
    let question: Question = serde_json::from_slice(&text).context("reading the question")?;
    let answer = serde_json::to_vec(&judge(&question))?;
    std::io::stdout().write_all(&answer).context("writing the answer")
}

/// Evaluates here, without bounds.
fn judge(question: &Question) -> Result<(), String> {
    let expression = short(&question.expression, QUOTED);
    let program = Program::compile(&question.expression).map_err(|errors| {
        let first = errors.errors.first().map(|error| error.msg.replace('\n', " ")).unwrap_or_default();
        format!("{expression} is no valid CEL: {}", short(&first, LENGTH))
    })?;
    let variables = question.subject.variables();
    let mut context = cel::Context::default();
    for (name, value) in &variables {
        context.add_variable_from_value(*name, as_cel(value));
    }
    match program.execute(&context) {
        Ok(Cel::Bool(true)) => Ok(()),
        Ok(Cel::Bool(false)) => Err(format!("{expression} is false{}", shown(program.expression(), &variables))),
        Ok(other) => Err(format!("{expression} must be true or false, and is of the type {}", other.type_of())),
        Err(ExecutionError::NoSuchKey(name)) => {
            Err(format!("{expression} names `{name}`, which is not there: ask for it by has() first"))
        }
        Err(ExecutionError::UndeclaredReference(name)) => {
            let known: Vec<&str> = variables.iter().map(|(name, _)| *name).collect();
            Err(format!("{expression} names `{name}`, and there is only {}", known.join(" and ")))
        }
        Err(error) => {
            let values = shown(program.expression(), &variables);
            Err(format!("{expression} can't be evaluated: {}{values}", short(&error.to_string(), LENGTH)))
        }
    }
}

/// A value that an expression speaks of. Numbers of samples are no JSON.
#[derive(Clone, Debug)]
enum Given {
    Json(Value),
    Number(f64),
    Samples(Vec<Sample>),
}

impl Subject {
    fn variables(&self) -> Vec<(&'static str, Given)> {
        match self {
            Self::Object(object) => vec![("object", Given::Json(object.clone()))],
            Self::Samples(samples) => {
                let first = samples.first().map_or(0.0, Sample::number);
                vec![("value", Given::Number(first)), ("result", Given::Samples(samples.clone()))]
            }
        }
    }
}

fn as_cel(given: &Given) -> Cel {
    match given {
        Given::Json(value) => json_as_cel(value),
        Given::Number(number) => Cel::Float(*number),
        Given::Samples(samples) => {
            let sample = |sample: &Sample| {
                let metric: HashMap<String, String> = sample.metric.clone().into_iter().collect();
                let fields = [("metric", Cel::from(metric)), ("value", Cel::Float(sample.number()))];
                Cel::from(HashMap::from(fields))
            };
            Cel::from(samples.iter().map(sample).collect::<Vec<_>>())
        }
    }
}

/// Numbers without a fraction are `int`, as in the API server's own expressions.
fn json_as_cel(value: &Value) -> Cel {
    match value {
        Value::Null => Cel::Null,
        Value::Bool(flag) => Cel::Bool(*flag),
        Value::Number(number) => {
            number.as_i64().map_or_else(|| Cel::Float(number.as_f64().unwrap_or(f64::NAN)), Cel::Int)
        }
        Value::String(text) => Cel::from(text.as_str()),
        Value::Array(entries) => Cel::from(entries.iter().map(json_as_cel).collect::<Vec<_>>()),
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, field)| (name.clone(), json_as_cel(field)));
            Cel::from(fields.collect::<HashMap<_, _>>())
        }
    }
}

/// The plain values that an expression names, in brackets.
fn shown(expression: &IdedExpr, variables: &[(&'static str, Given)]) -> String {
    let mut names = Vec::new();
    named(&expression.expr, &mut names);
    names.dedup();
    let values = names.iter().filter_map(|path| {
        let (root, fields) = path.split_first()?;
        let (_, given) = variables.iter().find(|(name, _)| name == root)?;
        let text = match given {
            Given::Json(json) => {
                let value = fields.iter().try_fold(json, |value, field| value.get(field))?;
                (!value.is_object() && !value.is_array()).then(|| value.to_string())?
            }
            Given::Number(number) => number.to_string(),
            Given::Samples(samples) => format!("{} samples", samples.len()),
        };
        Some(format!("{} is {}", path.join("."), short(&text, LENGTH)))
    });
    let values: Vec<String> = values.take(SHOWN).collect();
    if values.is_empty() { String::new() } else { format!(" ({})", values.join(", ")) }
}

/// The names such as `object.spec.replicas` in an expression, in order. What is said of each entry of a list is left out.
fn named(expression: &Expr, names: &mut Vec<Vec<String>>) {
    match expression {
        Expr::Ident(_) | Expr::Select(_) => match path(expression) {
            Some(path) => names.push(path),
            None => {
                if let Expr::Select(select) = expression {
                    named(&select.operand.expr, names);
                }
            }
        },
        Expr::Call(call) => {
            call.target.iter().map(AsRef::as_ref).chain(&call.args).for_each(|part| named(&part.expr, names));
        }
        Expr::Comprehension(comprehension) => named(&comprehension.iter_range.expr, names),
        Expr::List(list) => list.elements.iter().for_each(|part| named(&part.expr, names)),
        _ => {}
    }
}

fn path(expression: &Expr) -> Option<Vec<String>> {
    match expression {
        Expr::Ident(name) => Some(vec![name.clone()]),
        Expr::Select(select) if !select.test => {
            let mut path = path(&select.operand.expr)?;
            path.push(select.field.clone());
            Some(path)
        }
        _ => None,
    }
}

/// A text, or its beginning where it is longer.
pub(super) fn short(text: &str, length: usize) -> String {
    if text.chars().count() <= length {
        return text.to_owned();
    }
    text.chars().take(length).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn of_object(expression: &str) -> Result<(), String> {
        let object = json!({
            "spec": {"replicas": 3, "paused": false, "share": 0.5},
            "status": {"readyReplicas": 2, "phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
        });
        judge(&Question { expression: expression.into(), subject: Subject::Object(object) })
    }

    fn of_samples(expression: &str, values: &[&str]) -> Result<(), String> {
        let sample = |value: &&str| Sample {
            metric: [("alertname".to_owned(), format!("a{value}"))].into(),
            value: (*value).to_owned(),
        };
        let subject = Subject::Samples(values.iter().map(sample).collect());
        judge(&Question { expression: expression.into(), subject })
    }

    #[test]
    fn what_is_true_of_an_object_passes() {
        for expression in [
            "object.status.readyReplicas == object.spec.replicas - 1",
            "object.status.readyReplicas >= 2 && !object.spec.paused",
            "object.spec.share < 1.0",
            "!has(object.status.failed) || object.status.failed == 0",
            "object.status.conditions.exists(c, c.type == 'Ready' && c.status == 'True')",
            "object.status.phase in ['Running', 'Succeeded']",
            "object.status.phase.matches('^Run')",
            "size(object.status.conditions) == 1",
        ] {
            assert_eq!(of_object(expression), Ok(()), "{expression}");
        }
    }

    #[test]
    fn what_is_not_says_why() {
        for (expression, sentence) in [
            (
                "object.status.readyReplicas == object.spec.replicas",
                "object.status.readyReplicas == object.spec.replicas is false (object.status.readyReplicas is 2, \
                 object.spec.replicas is 3)",
            ),
            ("1 > 2", "1 > 2 is false"),
            (
                "object.status.conditions.all(c, c.status == 'False')",
                "object.status.conditions.all(c, c.status == 'False') is false",
            ),
            (
                "object.status.updated == 3",
                "object.status.updated == 3 names `updated`, which is not there: ask for it by has() first",
            ),
            ("pod.status.phase == 'Running'", "pod.status.phase == 'Running' names `pod`, and there is only object"),
            (
                "object.status.readyReplicas",
                "object.status.readyReplicas must be true or false, and is of the type int",
            ),
            (
                "object.spec.share - 1 > 0.0",
                "object.spec.share - 1 > 0.0 can't be evaluated: Unsupported binary operator 'sub': Float(0.5), Int(1) \
                 (object.spec.share is 0.5)",
            ),
        ] {
            assert_eq!(of_object(expression), Err(sentence.to_owned()));
        }
        let wrong = of_object("object.status ==").unwrap_err();
        assert!(wrong.starts_with("object.status == is no valid CEL: "), "{wrong}");
    }

    #[test]
    fn samples_are_a_value_and_a_result() {
        assert_eq!(of_samples("value == 0 && size(result) == 0", &[]), Ok(()));
        assert_eq!(of_samples("value == 2 && result[1].value > 2.5", &["2", "3"]), Ok(()));
        assert_eq!(of_samples("result.all(s, s.metric.alertname != 'b')", &["1"]), Ok(()));
        assert!(of_samples("value < 1", &["NaN"]).unwrap_err().ends_with("(value is NaN)"));
        assert_eq!(of_samples("value < 1 && value >= 0.5", &["0.5"]), Ok(()));
        assert_eq!(of_samples("value > 1e9", &["+Inf"]), Ok(()));
        assert_eq!(of_samples("value == 0", &["4"]).unwrap_err(), "value == 0 is false (value is 4)");
        assert_eq!(
            of_samples("size(result) == 0", &["1", "2"]).unwrap_err(),
            "size(result) == 0 is false (result is 2 samples)"
        );
    }

    #[tokio::test]
    async fn who_finds_no_place_does_not_wait_long() {
        let places = Semaphore::new(1);
        let _taken = places.acquire().await.unwrap();
        let question = Question { expression: "true".into(), subject: Subject::Samples(Vec::new()) };
        assert!(evaluate(&places, &question).await.is_none());
    }

    #[test]
    fn long_values_are_cut() {
        let object = json!({"text": "x".repeat(1000)});
        let question = Question { expression: "object.text == ''".into(), subject: Subject::Object(object) };
        assert!(judge(&question).unwrap_err().len() < 200);
    }
}
