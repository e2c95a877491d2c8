;; Asks for another attempt and leaves the time to the retry policy.
(data (i32.const 2048) "no luck yet")
(func $run (param i32 i32) (result i32)
  (call $retry (i32.const 2048) (i32.const 11) (i64.const -1)))
