;; Logs for ever.
(func $run (param i32 i32) (result i32)
  (loop $again
    (call $log (i32.const 0) (i32.const 2048) (i32.const 1000))
    (br $again))
  unreachable)
