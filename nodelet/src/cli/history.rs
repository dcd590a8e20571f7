//! `nodelet history`

use super::{Global, Output, print_json};
use crate::exit;
use crate::store::{End, Kind, Store, Summary};
use std::process::ExitCode;

pub(super) fn execute(global: &Global) -> anyhow::Result<ExitCode> {
    let history = Store::open(&global.root())?.history()?;
    if global.output == Output::Json {
        print_json(&history)?;
        return Ok(exit::code(exit::OK));
    }
    println!("{:>6}  {:<19}  {:<8}  {:<12}  {:>5}  RESULT", "NUMBER", "STARTED", "WHY", "REVISION", "STEPS");
    for Summary { record, steps, end, .. } in &history {
        let why = match record.kind {
            Kind::Apply => "apply",
            Kind::Repair => "repair",
            Kind::Rollback => "rollback",
        };
        let started = record.started.strftime("%F %T");
        let result = result(end.as_ref());
        println!("{:>6}  {started:<19}  {why:<8}  {:<12}  {steps:>5}  {result}", record.number, record.revision);
    }
    Ok(exit::code(exit::OK))
}

fn result(end: Option<&End>) -> String {
    match end {
        None => "under way".into(),
        Some(End::Done) => "done".into(),
        Some(End::Undone(why)) => format!("undone: {why}"),
        Some(End::Stuck(why)) => format!("STUCK: {why}"),
    }
}
