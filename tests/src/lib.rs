//! The test bed: real nodes and a real control plane on one machine.
//!
//! A test process takes a [`slot`], which gives it a bridge, a subnet and a directory of its own, and is swept clean
//! when the process ends, however it ends. In the slot it boots [`node`]s (systemd-nspawn, from cached [`image`]s),
//! serves them [`dummy`] packages from signed [`repository`]s, and starts a [`cluster`] (etcd, API server,
//! controller manager, scheduler) that real kubelets on the nodes join. Nothing here is a mock.

pub mod bench;
pub mod cgroup;
pub mod cloud_init;
pub mod cluster;
pub mod command;
pub mod debian;
pub mod demo;
pub mod demo_cluster;
mod digest;
pub mod dummy;
pub mod http;
pub mod image;
pub mod kubernetes;
pub mod lock;
pub mod node;
pub mod nodelet;
pub mod paths;
pub mod previous;
pub mod process;
pub mod repackage;
pub mod repository;
pub mod slot;
pub mod software;
pub mod wait;

pub use node::{Node, NodeOptions};
pub use slot::{Slot, slot};
pub use wait::wait_until;
