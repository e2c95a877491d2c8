;; Returns the number of its attempt as one digit.
(func $run (param i32 i32) (result i32)
  (i32.store8 (i32.const 2048) (i32.add (global.get $attempt) (i32.const 48)))
  (call $ok (i32.const 2048) (i32.const 1)))
