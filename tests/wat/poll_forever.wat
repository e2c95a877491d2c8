;; Waits for no time at all, for ever.
(import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
(func $run (param i32 i32) (result i32)
  (i32.store (i32.const 2064) (i32.const 1))
  (loop $again
    (drop (call $poll (i32.const 2048) (i32.const 2112) (i32.const 1) (i32.const 2176)))
    (br $again))
  unreachable)
