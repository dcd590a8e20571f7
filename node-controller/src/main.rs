//! node-controller: writes the desired state of every node and decides when a node may be disturbed.

fn main() {}
