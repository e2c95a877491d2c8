;; Recurses as Rust and C do: each call takes its frame from a stack in linear memory, which runs below address 0 long
;; before wasm's own stack is full.
(global $stack (mut i32) (i32.const 1024))
(func $deeper (param i32) (result i32)
  (global.set $stack (i32.sub (global.get $stack) (i32.const 16)))
  (i32.store (global.get $stack) (local.get 0))
  (i32.add (call $deeper (i32.add (local.get 0) (i32.const 1))) (i32.const 1)))
(func $run (param i32 i32) (result i32)
  (call $deeper (i32.const 0)))
