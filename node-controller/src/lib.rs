//! node-controller writes each node's desired state, and decides when a node may be disturbed.
//!
//! What is here so far: the look at a cluster before anything is installed into it.

pub mod cli;
pub mod preflight;
