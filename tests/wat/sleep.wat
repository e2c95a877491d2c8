;; Sleeps for an hour in a host call.
(import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
(func $run (param i32 i32) (result i32)
  (i32.store (i32.const 2064) (i32.const 1))               ;; the monotonic clock
  (i64.store (i32.const 2072) (i64.const 3600000000000))
  (drop (call $poll (i32.const 2048) (i32.const 2112) (i32.const 1) (i32.const 2176)))
  unreachable)
