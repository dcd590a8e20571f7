//! The architectures that packages are built for, by the name that each world gives them.

use anyhow::{Result, bail};

/// The architecture of a package.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Arch {
    /// 64-bit x86: `amd64`, `x86_64`.
    Amd64,
    /// 64-bit ARM: `arm64`, `aarch64`.
    Arm64,
    /// Independent of the architecture: `all`, `noarch`.
    All,
}

impl Arch {
    /// The architectures that have machines, in the order in which indexes list them.
    pub const MACHINES: [Self; 2] = [Self::Amd64, Self::Arm64];

    /// The architecture of the machine that this program runs on.
    pub fn host() -> Result<Self> {
        match std::env::consts::ARCH {
            "x86_64" => Ok(Self::Amd64),
            "aarch64" => Ok(Self::Arm64),
            other => bail!("no packages are made for the architecture {other}; x86_64 and aarch64 are supported"),
        }
    }

    /// The name in a `.deb`.
    pub fn deb(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
            Self::All => "all",
        }
    }

    /// The name in an `.rpm`.
    pub fn rpm(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64",
            Self::Arm64 => "aarch64",
            Self::All => "noarch",
        }
    }
}
