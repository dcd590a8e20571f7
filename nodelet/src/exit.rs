//! Exit codes, documented in the manual page.

use std::process::ExitCode;

/// All is well; for `plan`: nothing to do.
pub const OK: u8 = 0;
/// Something failed; the message says what.
pub const FAILED: u8 = 1;
/// `plan` only: there is something to do. (2 is also what clap uses for a wrong command line.)
pub const CHANGES: u8 = 2;
/// The configuration or the state is invalid; nothing was changed. `EX_CONFIG` of sysexits.h, which the
/// unit takes as "don't restart: a person must edit a file first".
pub const INVALID: u8 = 78;

/// As the process ends with it.
pub fn code(code: u8) -> ExitCode {
    ExitCode::from(code)
}
