//! What nodelet says of itself: the log and the status file.

pub mod log;
pub mod status;
