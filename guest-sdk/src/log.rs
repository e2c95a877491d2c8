//! Lines for the attempt's log. On wasm they go to the worker, in a native test to the mock context and to stderr,
//! where `cargo test` shows them beside a failure.

use std::fmt::{self, Display};

use crate::host;

/// How loud a line of the log is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Every step, for whoever hunts a bug.
    Trace,
    /// What helps while developing.
    Debug,
    /// What happened.
    Info,
    /// Something to look at; the job goes on.
    Warn,
    /// Something went wrong.
    Error,
}

impl Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Trace => "trace",
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
        })
    }
}

/// What the macros call.
#[doc(hidden)]
pub fn write(level: Level, message: fmt::Arguments<'_>) {
    match message.as_str() {
        Some(literal) => host::log(level, literal),
        None => host::log(level, &message.to_string()),
    }
}

/// Adds a line to the attempt's log at level `trace`. Takes what `format!` takes.
#[macro_export]
macro_rules! trace {
    ($($message:tt)+) => { $crate::__private::log($crate::Level::Trace, ::core::format_args!($($message)+)) };
}

/// Adds a line to the attempt's log at level `debug`. Takes what `format!` takes.
#[macro_export]
macro_rules! debug {
    ($($message:tt)+) => { $crate::__private::log($crate::Level::Debug, ::core::format_args!($($message)+)) };
}

/// Adds a line to the attempt's log at level `info`. Takes what `format!` takes.
#[macro_export]
macro_rules! info {
    ($($message:tt)+) => { $crate::__private::log($crate::Level::Info, ::core::format_args!($($message)+)) };
}

/// Adds a line to the attempt's log at level `warn`. Takes what `format!` takes.
#[macro_export]
macro_rules! warn {
    ($($message:tt)+) => { $crate::__private::log($crate::Level::Warn, ::core::format_args!($($message)+)) };
}

/// Adds a line to the attempt's log at level `error`. Takes what `format!` takes.
#[macro_export]
macro_rules! error {
    ($($message:tt)+) => { $crate::__private::log($crate::Level::Error, ::core::format_args!($($message)+)) };
}
