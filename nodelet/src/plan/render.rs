//! A plan for people: one line a step with its reason, and unified diffs of files.

use super::{Action, PackageChange, PackageGoal, Plan, Step, UnitChange};
use crate::desired::Target;
use nodelet_api::Disruption;
use similar::TextDiff;
use std::fmt::Write;

/// How the text is coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// For a terminal.
    Coloured,
    /// For a file or a pipe.
    Plain,
}

const GREEN: &str = "32";
const RED: &str = "31";
const YELLOW: &str = "33";
const DIM: &str = "2";
const BOLD: &str = "1";

impl Style {
    fn paint(self, colour: &str, text: &str) -> String {
        match self {
            Self::Coloured => format!("\x1b[{colour}m{text}\x1b[0m"),
            Self::Plain => text.to_owned(),
        }
    }
}

/// The plan as text. `old` tells what is in a file now.
pub fn render(plan: &Plan, target: &Target, old: &dyn Fn(&str) -> Vec<u8>, style: Style) -> String {
    if plan.is_empty() {
        return "Nothing to do: the node is as the state wants it.\n".into();
    }
    let mut out = String::new();
    if !plan.refresh.is_empty() {
        let names = plan.refresh.iter().cloned().collect::<Vec<_>>().join(", ");
        let line = format!("Before anything changes, packages are resolved and downloaded from {names}.");
        let _ = writeln!(out, "{}", style.paint(DIM, &line));
    }
    for step in &plan.steps {
        let (mark, colour) = mark(&step.action);
        let head = style.paint(colour, &format!("{mark} {}", headline(&step.action)));
        let class = match step.disruption {
            Disruption::None => String::new(),
            class => style.paint(YELLOW, &format!(" [{class}]")),
        };
        let _ = writeln!(out, "{head}{class}{}", style.paint(DIM, &format!("  because {}", step.reason)));
        out.push_str(&diff(step, target, old, style));
    }
    let count = plan.steps.len();
    let steps = if count == 1 { "1 step".to_owned() } else { format!("{count} steps") };
    let _ = writeln!(out, "\n{}", style.paint(BOLD, &format!("{steps}, disruption: {}", plan.disruption)));
    out
}

fn mark(action: &Action) -> (&'static str, &'static str) {
    match action {
        Action::RemoveFile { .. }
        | Action::Unit { change: UnitChange::Stop | UnitChange::Disable | UnitChange::Mask, .. } => ("-", RED),
        Action::WriteFile { .. } | Action::Unit { change: UnitChange::Start | UnitChange::Enable, .. } => ("+", GREEN),
        _ => ("~", YELLOW),
    }
}

/// What a step does, in one line.
pub fn headline(action: &Action) -> String {
    match action {
        Action::WriteFile { path } => format!("write {path}"),
        Action::RemoveFile { path } => format!("remove {path}"),
        Action::ChangePackages { changes } => changes.iter().map(package).collect::<Vec<_>>().join(", "),
        Action::KeepPackage { name } => format!("mark {name} as wanted"),
        Action::HoldPackage { name } => format!("hold {name}"),
        Action::UnholdPackage { name } => format!("unhold {name}"),
        Action::LoadModule { name } => format!("load kernel module {name}"),
        Action::SetParameter { key, value } => format!("set kernel parameter {key} = {value}"),
        Action::SwapOff => "turn swap off".into(),
        Action::DaemonReload => "reload systemd's units".into(),
        Action::Unit { name, change } => format!("{} {name}", verb(*change)),
    }
}

fn package(change: &PackageChange) -> String {
    let name = &change.name;
    match (&change.from, &change.to) {
        (_, PackageGoal::Any) => format!("install {name}"),
        (None, PackageGoal::Version(to) | PackageGoal::Downgrade(to)) => format!("install {name} {to}"),
        (Some(from), PackageGoal::Version(to)) => format!("change {name} {from} to {to}"),
        (Some(from), PackageGoal::Downgrade(to)) => format!("downgrade {name} {from} to {to}"),
        (_, PackageGoal::Removed) => format!("remove {name}"),
    }
}

fn verb(change: UnitChange) -> &'static str {
    match change {
        UnitChange::Unmask => "unmask",
        UnitChange::Mask => "mask",
        UnitChange::Enable => "enable",
        UnitChange::Disable => "disable",
        UnitChange::Stop => "stop",
        UnitChange::Start => "start",
        UnitChange::Restart | UnitChange::Renew => "restart",
        UnitChange::Reload => "reload",
    }
}

/// The diff of a file that is written, indented below its step.
fn diff(step: &Step, target: &Target, old: &dyn Fn(&str) -> Vec<u8>, style: Style) -> String {
    let Action::WriteFile { path } = &step.action else { return String::new() };
    let Some(file) = target.files.get(path) else { return String::new() };
    let (old, new) = (old(path), file.content.bytes());
    if old == new {
        return String::new();
    }
    // What only its owner may read may be a secret: its content is nobody's business here.
    if file.secret || file.mode & 0o044 == 0 {
        return "    (content not shown: only its owner may read it)\n".into();
    }
    let (Ok(old), Ok(new)) = (std::str::from_utf8(&old), std::str::from_utf8(new)) else {
        return format!("    (not text: {} bytes become {})\n", old.len(), new.len());
    };
    let diff = TextDiff::from_lines(old, new);
    let text = diff.unified_diff().context_radius(3).header(path, path).to_string();
    text.lines().fold(String::new(), |out, line| {
        let colour = match line.as_bytes().first() {
            Some(b'+') => GREEN,
            Some(b'-') => RED,
            _ => DIM,
        };
        out + "    " + &style.paint(colour, line) + "\n"
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::desired::{Followers, Purpose, TargetFile};

    fn shown(mode: u32, style: Style) -> String {
        let path = "/etc/a".to_owned();
        let file = TargetFile {
            content: "one\nsecret\n".into(),
            mode,
            owner: "root".into(),
            group: "root".into(),
            purpose: Purpose::Plain,
            followers: Followers::default(),
            drift: nodelet_api::Drift::Repair,
            on_change: None,
            secret: false,
        };
        let mut target = Target::default();
        target.files.insert(path.clone(), file);
        let step = Step {
            action: Action::WriteFile { path },
            reason: "its content differs".into(),
            disruption: Disruption::None,
            undo: String::new(),
        };
        render(&Plan { steps: vec![step], ..Plan::default() }, &target, &|_| b"one\ntwo\n".to_vec(), style)
    }

    #[test]
    fn files_are_shown_as_diffs() {
        let text = shown(0o644, Style::Plain);
        assert!(text.contains("+ write /etc/a  because its content differs\n"), "{text}");
        assert!(text.contains("    -two\n    +secret\n"), "{text}");
        assert!(!text.contains('\x1b') && shown(0o644, Style::Coloured).contains("\x1b[32m"));
    }

    #[test]
    fn secrets_are_not_shown() {
        let text = shown(0o600, Style::Plain);
        assert!(!text.contains("secret") && text.contains("content not shown"), "{text}");
    }
}
