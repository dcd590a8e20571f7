//! Tests on real nodes, without a cluster.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "host/converge.rs"]
mod converge;
#[path = "host/crash.rs"]
mod crash;
#[path = "host/faults.rs"]
mod faults;
#[path = "host/node.rs"]
mod node;
#[path = "host/nodelet.rs"]
mod nodelet;
#[path = "host/packages.rs"]
mod packages;
#[path = "host/sweep.rs"]
mod sweep;
