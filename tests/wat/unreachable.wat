;; Panics as Rust does: a message in the log, then `unreachable`.
(data (i32.const 2048) "thread 'main' panicked at src/lib.rs:7:5:\nboom\nnote: run with `RUST_BACKTRACE=1` environment variable to display a backtrace")
(func $run (param i32 i32) (result i32)
  (call $log (i32.const 4) (i32.const 2048) (i32.const 125))
  unreachable)
