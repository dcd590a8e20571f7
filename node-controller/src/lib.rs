//! node-controller writes each node's desired state, and decides when a node may be disturbed.
//!
//! A pure core and a thin shell: [`decide`] says what is to be written from what the cluster holds ([`world`]), and
//! [`act`] writes it. Every decision is made from the API's state, none from memory.

pub mod act;
mod batch;
pub mod cli;
pub mod decide;
mod gates;
pub mod kubectl;
pub mod leader;
mod pods;
pub mod preflight;
pub mod probes;
pub mod render;
pub mod request;
pub mod rollout;
pub mod run;
mod sources;
mod view;
mod volumes;
pub mod world;
