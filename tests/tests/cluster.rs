//! Tests with a real control plane and real kubelets.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "cluster/cloud_init.rs"]
mod cloud_init;
#[path = "cluster/contents.rs"]
mod contents;
#[path = "cluster/control_plane.rs"]
mod control_plane;
#[path = "cluster/cost.rs"]
mod cost;
#[path = "cluster/faults.rs"]
mod faults;
#[path = "cluster/fleet.rs"]
mod fleet;
#[path = "cluster/follow.rs"]
mod follow;
#[path = "cluster/gates.rs"]
mod gates;
#[path = "cluster/herd.rs"]
mod herd;
#[path = "cluster/identity.rs"]
mod identity;
#[path = "cluster/install.rs"]
mod install;
#[path = "cluster/kubeadm.rs"]
mod kubeadm;
#[path = "cluster/nodes.rs"]
mod nodes;
#[path = "cluster/objects.rs"]
mod objects;
#[path = "cluster/plugin.rs"]
mod plugin;
#[path = "cluster/renewal.rs"]
mod renewal;
#[path = "cluster/rollout.rs"]
mod rollout;
#[path = "cluster/rollout_faults.rs"]
mod rollout_faults;
#[path = "cluster/rollout_gates.rs"]
mod rollout_gates;
#[path = "cluster/rollout_sets.rs"]
mod rollout_sets;
#[path = "cluster/rollout_turns.rs"]
mod rollout_turns;
#[path = "cluster/scene.rs"]
mod scene;
#[path = "cluster/skew.rs"]
mod skew;
#[path = "cluster/status.rs"]
mod status;
#[path = "cluster/waiting.rs"]
mod waiting;
