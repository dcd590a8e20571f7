//! placeholder
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]
use packaging::{arch::Arch, deb, key::SigningKey, package::Package, repository::{apt, dnf}, rpm};
#[test]
fn smoke() {
    let out = std::path::Path::new("/tmp/pk"); let _ = std::fs::remove_dir_all(out); std::fs::create_dir_all(out).unwrap();
    let key = SigningKey::generate("Test <t@example.org>", 1_704_067_200, None).unwrap();
    key.save(&out.join("key")).unwrap();
    let p = Package::new("demo", "1.0").arch(Arch::host().unwrap()).config_file("/etc/demo.conf", 0o600, "x=1\n").service("demo.service", "[Service]\nExecStart=/bin/sleep 1d\n[Install]\nWantedBy=multi-user.target\n").file(format!("/usr/share/{}/f", "long".repeat(40)), 0o644, "x").symlink("/usr/bin/demo", "../lib/x");
    let d = deb::write(&p, out).unwrap();
    let r = rpm::write(&p, out, Some(&key)).unwrap();
    std::fs::write(out.join("pub.asc"), key.public_armored().unwrap()).unwrap();
    std::fs::write(out.join("pub.gpg"), key.public_binary().unwrap()).unwrap();
    apt::write(&out.join("apt"), &[d], &apt::AptOptions::new("demo", 1_704_067_300), &key).unwrap();
    dnf::write(&out.join("dnf"), &[r], &key).unwrap();
}
