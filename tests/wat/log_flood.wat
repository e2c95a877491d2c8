;; Logs two million bytes in lines of 100, then ends well.
(func $run (param $at i32) (param $len i32) (result i32)
  (local $left i32)
  (local.set $left (i32.const 20000))
  (memory.fill (i32.const 2048) (i32.const 0x78) (i32.const 100))
  (loop $again
    (call $log (i32.const 2) (i32.const 2048) (i32.const 100))
    (br_if $again (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))
  (call $ok (local.get $at) (local.get $len)))
