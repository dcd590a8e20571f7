//! The cluster: one watch on this node's own `NodeState`, and reports of how far the node is.
//!
//! What the cluster asks for is kept on disk ([`crate::source::cluster`]) before anything acts on it, so that nothing
//! here has to be reached for the node to go on.

mod follow;
mod heartbeat;
mod report;
mod take;
mod watch;

pub use follow::{Follower, News};
pub use report::Report;
