;; Returns as many zero bytes as the payload's first four bytes say.
(func $run (param $at i32) (param i32) (result i32)
  (local $len i32)
  (local.set $len (i32.load (local.get $at)))
  (call $ok (call $alloc (i32.const 0) (i32.const 0) (i32.const 1) (local.get $len)) (local.get $len)))
