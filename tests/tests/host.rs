//! Tests on real nodes, without a cluster.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "host/back.rs"]
mod back;
#[path = "host/converge.rs"]
mod converge;
#[path = "host/crash.rs"]
mod crash;
#[path = "host/disks.rs"]
mod disks;
#[path = "host/docker.rs"]
mod docker;
#[path = "host/faults.rs"]
mod faults;
#[path = "host/health.rs"]
mod health;
#[path = "host/itself.rs"]
mod itself;
#[path = "host/node.rs"]
mod node;
#[path = "host/nodelet.rs"]
mod nodelet;
#[path = "host/packages.rs"]
mod packages;
#[path = "host/presets.rs"]
mod presets;
#[path = "host/scale.rs"]
mod scale;
#[path = "host/sweep.rs"]
mod sweep;
#[path = "host/units.rs"]
mod units;
