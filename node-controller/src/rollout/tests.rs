//! Rollouts over a cluster in miniature.

mod drains;
mod failures;
mod gates;
mod random;
mod simulation;
mod turns;
