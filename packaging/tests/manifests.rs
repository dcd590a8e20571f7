//! The manifests name the image that `packaging image` builds.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;

use packaging::image::CONTROLLER;

#[test]
fn the_deployment_names_the_image_of_this_version() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../config/default/controller.yaml");
    let text = std::fs::read_to_string(path).unwrap();
    let wanted = format!("image: {CONTROLLER}:{}", env!("CARGO_PKG_VERSION"));
    assert!(text.lines().any(|line| line.trim() == wanted), "config/default/controller.yaml has no line {wanted:?}");
}
