//! What was measured, beside what is asked for: as tables on the terminal, and as a file for programs.

use std::fs;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::samples::{Samples, duration};
use super::table::Table;
use crate::paths;

/// Everything that was measured.
#[derive(Debug, Default)]
pub(super) struct Report {
    measures: Vec<Measure>,
    targets: Vec<Target>,
    curves: Vec<Curve>,
}

#[derive(Debug)]
struct Measure {
    what: String,
    who: String,
    samples: Samples,
    /// How many times the bare commands.
    times_floor: Option<f64>,
}

#[derive(Debug)]
struct Target {
    what: String,
    nodelet: String,
    against: String,
    seen: String,
    limit: String,
    verdict: Verdict,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Holds,
    FallsShort,
    NotMeasured,
}

impl Verdict {
    fn of(holds: bool) -> Self {
        if holds { Self::Holds } else { Self::FallsShort }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Holds => "ok",
            Self::FallsShort => "falls short",
            Self::NotMeasured => "not measured",
        }
    }
}

/// How a cost grows.
#[derive(Debug)]
pub(super) struct Curve {
    /// What grows.
    pub(super) of: &'static str,
    /// What was done to make it grow.
    pub(super) how: &'static str,
    /// The points, smallest first.
    pub(super) points: Vec<Point>,
}

/// One point of a curve.
#[derive(Debug)]
pub(super) struct Point {
    /// How many there are.
    pub(super) count: usize,
    /// The bare commands.
    pub(super) floor: Samples,
    /// A no-op `nodelet apply`.
    pub(super) apply: Samples,
    /// Processor time of a check in the daemon.
    pub(super) check: Samples,
}

impl Report {
    /// Notes times, beside those of the bare commands where there are some.
    pub(super) fn measure(&mut self, what: &str, who: &str, samples: &Samples, floor: Option<&Samples>) {
        let times_floor = floor.and_then(|floor| samples.ratio(floor));
        println!("    {what}: {who} {} ({})", median(samples), samples.spread());
        self.measures.push(Measure {
            what: what.to_owned(),
            who: who.to_owned(),
            samples: samples.clone(),
            times_floor,
        });
    }

    /// nodelet is to take at most so many times as long as the other.
    pub(super) fn at_most(&mut self, what: &str, nodelet: &Samples, other: (&str, &Samples), limit: f64) {
        let Some(seen) = nodelet.ratio(other.1) else { return self.not_measured(what, &format!("at most {limit} x")) };
        self.targets.push(Target {
            what: what.to_owned(),
            nodelet: median(nodelet),
            against: format!("{} {}", other.0, median(other.1)),
            seen: format!("{seen:.2} x"),
            limit: format!("at most {limit} x"),
            verdict: Verdict::of(seen <= limit),
        });
    }

    /// nodelet is to be at least so many times as fast as the other.
    pub(super) fn faster(&mut self, what: &str, nodelet: &Samples, other: (&str, &Samples), limit: f64) {
        let Some(seen) = other.1.ratio(nodelet) else {
            return self.not_measured(what, &format!("at least {limit} x faster"));
        };
        self.targets.push(Target {
            what: what.to_owned(),
            nodelet: median(nodelet),
            against: format!("{} {}", other.0, median(other.1)),
            seen: format!("{seen:.0} x faster"),
            limit: format!("at least {limit} x faster"),
            verdict: Verdict::of(seen >= limit),
        });
    }

    /// The median is to be below a time.
    pub(super) fn within(&mut self, what: &str, samples: &Samples, limit: f64) {
        let Some(seen) = samples.median() else { return self.not_measured(what, &duration(limit)) };
        self.targets.push(Target {
            what: what.to_owned(),
            nodelet: median(samples),
            against: "-".to_owned(),
            seen: format!("at worst {}", samples.longest().map(duration).unwrap_or_default()),
            limit: format!("at most {}", duration(limit)),
            verdict: Verdict::of(seen <= limit),
        });
    }

    /// A number is not to be exceeded.
    pub(super) fn not_above(&mut self, what: &str, seen: f64, limit: f64, unit: &str) {
        self.targets.push(Target {
            what: what.to_owned(),
            nodelet: format!("{seen:.1} {unit}"),
            against: "-".to_owned(),
            seen: "-".to_owned(),
            limit: format!("at most {limit:.0} {unit}"),
            verdict: Verdict::of(seen <= limit),
        });
    }

    /// Something that could not be, or was not to be, measured.
    pub(super) fn not_measured(&mut self, what: &str, limit: &str) {
        self.targets.push(Target {
            what: what.to_owned(),
            nodelet: "-".to_owned(),
            against: "-".to_owned(),
            seen: "-".to_owned(),
            limit: limit.to_owned(),
            verdict: Verdict::NotMeasured,
        });
    }

    /// How a cost grows.
    pub(super) fn curve(&mut self, curve: Curve) {
        self.curves.push(curve);
    }

    /// Prints everything.
    pub(super) fn print(&self) {
        let mut table = Table::new("Times", &["what", "who", "median", "shortest … longest", "rounds", "x bare"]);
        for measure in &self.measures {
            table.row([
                measure.what.clone(),
                measure.who.clone(),
                median(&measure.samples),
                measure.samples.spread(),
                measure.samples.count().to_string(),
                measure.times_floor.map_or_else(|| "-".to_owned(), |times| format!("{times:.2}")),
            ]);
        }
        table.print();
        for curve in &self.curves {
            curve.print();
        }
        let mut table = Table::new("What is asked for", &["what", "nodelet", "against", "seen", "limit", "verdict"]);
        for target in &self.targets {
            table.row([
                target.what.clone(),
                target.nodelet.clone(),
                target.against.clone(),
                target.seen.clone(),
                target.limit.clone(),
                target.verdict.text().to_owned(),
            ]);
        }
        table.print();
    }

    /// Writes everything to `build/bench.json`.
    pub(super) fn write(&self) -> Result<()> {
        let path = paths::build().join("bench.json");
        fs::create_dir_all(paths::build()).with_context(|| format!("making {}", paths::build().display()))?;
        let text = serde_json::to_string_pretty(&self.json()).context("writing the results as JSON")?;
        fs::write(&path, text + "\n").with_context(|| format!("writing {}", path.display()))?;
        println!("\nAll times, in seconds, are in {}.", path.display());
        Ok(())
    }

    fn json(&self) -> Value {
        let measure = |measure: &Measure| {
            json!({
                "what": measure.what, "who": measure.who, "times": measure.samples.json(),
                "timesFloor": measure.times_floor,
            })
        };
        let target = |target: &Target| {
            json!({
                "what": target.what, "nodelet": target.nodelet, "against": target.against, "seen": target.seen,
                "limit": target.limit, "verdict": target.verdict.text(),
            })
        };
        json!({
            "measures": self.measures.iter().map(measure).collect::<Vec<_>>(),
            "targets": self.targets.iter().map(target).collect::<Vec<_>>(),
            "curves": self.curves.iter().map(Curve::json).collect::<Vec<_>>(),
        })
    }
}

impl Curve {
    fn print(&self) {
        let title = format!("No-op by the number of {} ({})", self.of, self.how);
        let mut table = Table::new(&title, &[self.of, "bare", "apply", "x bare", "per 100", "check (CPU)", "per 100"]);
        let mut before: Option<&Point> = None;
        for point in &self.points {
            let growth = |samples: fn(&Point) -> &Samples| before.and_then(|before| slope(before, point, samples));
            let shown =
                |slope: Option<f64>| slope.map_or_else(|| "-".to_owned(), |slope| format!("{:+.2} ms", slope * 1e5));
            table.row([
                point.count.to_string(),
                median(&point.floor),
                median(&point.apply),
                point.apply.ratio(&point.floor).map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}")),
                shown(growth(|point| &point.apply)),
                median(&point.check),
                shown(growth(|point| &point.check)),
            ]);
            before = Some(point);
        }
        table.print();
    }

    fn json(&self) -> Value {
        let point = |point: &Point| {
            json!({
                "count": point.count, "floor": point.floor.json(), "apply": point.apply.json(),
                "check": point.check.json(),
            })
        };
        json!({ "of": self.of, "how": self.how, "points": self.points.iter().map(point).collect::<Vec<_>>() })
    }
}

/// How much one more costs, in seconds.
#[allow(clippy::cast_precision_loss)]
fn slope(before: &Point, after: &Point, samples: fn(&Point) -> &Samples) -> Option<f64> {
    let more = after.count.checked_sub(before.count).filter(|more| *more > 0)?;
    Some((samples(after).median()? - samples(before).median()?) / more as f64)
}

fn median(samples: &Samples) -> String {
    samples.median().map_or_else(|| "-".to_owned(), duration)
}
