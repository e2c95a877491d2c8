;; Asks for another attempt in 1,500 ms.
(data (i32.const 2048) "no luck yet")
(func $run (param i32 i32) (result i32)
  (call $retry (i32.const 2048) (i32.const 11) (i64.const 1500)))
