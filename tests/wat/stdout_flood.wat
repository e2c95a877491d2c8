;; Writes two million bytes to stdout, then ends well.
(import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
(func $run (param $at i32) (param $len i32) (result i32)
  (local $left i32)
  (local.set $left (i32.const 20000))
  (memory.fill (i32.const 2048) (i32.const 0x79) (i32.const 100))
  (i32.store (i32.const 2200) (i32.const 2048))
  (i32.store (i32.const 2204) (i32.const 100))
  (loop $again
    (drop (call $write (i32.const 1) (i32.const 2200) (i32.const 1) (i32.const 2208)))
    (br_if $again (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))
  (call $ok (local.get $at) (local.get $len)))
