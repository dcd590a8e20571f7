//! soon
/// soon
pub fn run() -> anyhow::Result<()> {
    Ok(())
}
