//! How the cost of a no-op grows with the number of files, and with the number of installed packages.

use std::fmt::Write as _;
use std::fs;

use anyhow::{Context, Result};

use super::daemon::Daemon;
use super::reference::{self, FILES, FILES_DIR, INPUTS, OLD};
use super::report::{Curve, Point, Report};
use super::samples::Samples;
use super::site::Site;
use super::stopwatch::time;
use super::{Rounds, say};
use crate::Node;
use crate::digest::sha256;

/// Files in the state.
const FILE_COUNTS: [usize; 5] = [60, 125, 250, 500, 1000];
/// Installed packages.
const PACKAGE_COUNTS: [usize; 4] = [500, 1000, 1500, 2000];
/// dpkg's database.
const DATABASE: &str = "/var/lib/dpkg/status";

/// Both curves, each on a node of its own: nodelet remembers the states that were, and a node that once had a thousand
/// files is not like others.
pub(super) fn measure(site: &Site, rounds: Rounds, report: &mut Report) -> Result<()> {
    let node = &site.node("files")?;
    let mut points = Vec::new();
    for count in FILE_COUNTS {
        say(&format!("{count} files"));
        points.push(point(site, node, count, count, rounds)?);
    }
    report.curve(Curve { of: "files", how: "of a kilobyte each, in the reference state", points });

    let node = &site.node("packages")?;
    node.run(&["nodelet", "apply", &format!("{INPUTS}/{OLD}/state.toml")])?;
    let mut points = Vec::new();
    for count in PACKAGE_COUNTS {
        say(&format!("{count} installed packages"));
        fill_database(node, count)?;
        points.push(point(site, node, count, FILES, rounds)?);
    }
    let how = "of which most are entries added to dpkg's status file, without files of their own";
    report.curve(Curve { of: "installed packages", how, points });
    Ok(())
}

/// Brings the node to the reference state with so many files, and measures there.
fn point(site: &Site, node: &Node, count: usize, files: usize, rounds: Rounds) -> Result<Point> {
    let state = site.state(OLD, files);
    let sum = |(name, content): (String, String)| format!("{}  {FILES_DIR}/{name}\n", sha256(content));
    site.write("curve.toml", &state)?;
    site.write("curve-sums", reference::files(files).into_iter().map(sum).collect::<String>())?;
    site.write("curve.sh", reference::bare_check(&format!("{INPUTS}/curve-sums")))?;
    let (script, path) = (format!("{INPUTS}/curve.sh"), format!("{INPUTS}/curve.toml"));
    node.run(&["nodelet", "apply", &path])?;
    let (mut floor, mut apply) = (Samples::default(), Samples::default());
    for _ in 0..rounds.quick.div_ceil(2) {
        floor.push(time(node, &["sh", &script])?.time);
        apply.push(time(node, &["nodelet", "apply", &path])?.time);
    }
    let daemon = Daemon::start(node, &state)?;
    let check = daemon.checks(rounds.quick.div_ceil(2))?;
    daemon.stop()?;
    Ok(Point { count, floor, apply, check })
}

/// Adds made-up packages to dpkg's status file until it has so many.
fn fill_database(node: &Node, count: usize) -> Result<()> {
    let path = format!("/proc/{}/root{DATABASE}", node.leader()?);
    let mut text = fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
    let there = text.lines().filter(|line| line.starts_with("Package: ")).count();
    for number in there..count {
        let _ = write!(
            text,
            "Package: made-up-{number}\nStatus: install ok installed\nPriority: optional\nSection: libs\n\
             Installed-Size: {number}\nMaintainer: Nobody <nobody@example.org>\nArchitecture: amd64\n\
             Multi-Arch: same\nSource: made-up\nVersion: 1.2.{number}-3+deb12u1\n\
             Depends: libc6 (>= 2.34), libgcc-s1 (>= 3.0), libstdc++6 (>= 11), zlib1g (>= 1:1.1.4)\n\
             Breaks: made-up-old (<< 1.0)\nReplaces: made-up-old (<< 1.0)\n\
             Conffiles:\n /etc/made-up/{number}.conf 0123456789abcdef0123456789abcdef\n\
             Description: package that stands for one of many\n It is here to be read over, as most packages of a host \
             are by a tool that\n manages a few of them. Its entry is about as long as an entry is on average, so\n \
             that the size of the file is right, too.\nHomepage: https://example.org/made-up\n\n"
        );
    }
    node.write_file(DATABASE, text, 0o644)
}
