;; Calls exit(3) from inside the handler.
(import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
(func $run (param i32 i32) (result i32)
  (call $exit (i32.const 3))
  unreachable)
