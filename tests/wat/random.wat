;; Wants 100 MiB of random numbers at once.
(import "wasi:random/random@0.2.0" "get-random-bytes" (func $random (param i64 i32)))
(func $run (param i32 i32) (result i32)
  (call $random (i64.const 104857600) (i32.const 2048))
  unreachable)
