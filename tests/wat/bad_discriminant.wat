;; Returns neither ok nor err.
(func $run (param i32 i32) (result i32)
  (i32.store8 (i32.const 1024) (i32.const 7))
  (i32.const 1024))
