;; Ends with what an earlier run saved. The first run saves, logs a line, shows that it is half done, and goes on until it is told to cancel.
(import "leasehold:job/host@1.0.0" "checkpoint-save" (func $save (param i32 i32 i32)))
(import "leasehold:job/host@1.0.0" "checkpoint-load" (func $load (param i32)))
(import "leasehold:job/host@1.0.0" "progress" (func $progress (param f32 i32 i32) (result i32)))
(import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
(data (i32.const 3000) "half done, \"saved\"")
(func $run (param $at i32) (param $len i32) (result i32)
  (call $load (i32.const 2048))
  (if (i32.load8_u (i32.const 2048))
    (then (return (call $ok (i32.load (i32.const 2052)) (i32.load (i32.const 2056))))))
  (call $save (i32.const 3011) (i32.const 7) (i32.const 2064))
  (call $log (i32.const 3) (i32.const 3000) (i32.const 9))
  (i32.store (i32.const 2112) (i32.const 1))               ;; the monotonic clock
  (i64.store (i32.const 2120) (i64.const 10000000))        ;; 10 ms
  (loop $again
    (drop (call $poll (i32.const 2096) (i32.const 2160) (i32.const 1) (i32.const 2220)))
    (br_if $again (i32.eqz (call $progress (f32.const 0.5) (i32.const 3000) (i32.const 9)))))
  (call $dead (i32.const 3000) (i32.const 9)))
