;; Makes requests until it has no handle left, each with a method of 64 KiB, and counts those that took it.
(import "wasi:http/types@0.2.0" "[constructor]fields" (func $fields (result i32)))
(import "wasi:http/types@0.2.0" "[constructor]outgoing-request" (func $request (param i32) (result i32)))
(import "wasi:http/types@0.2.0" "[method]outgoing-request.set-method" (func $set_method (param i32 i32 i32 i32) (result i32)))
(func $run (param i32 i32) (result i32)
  (local $left i32)
  (local.set $left (i32.const 100))
  (drop (memory.grow (i32.const 2)))
  (memory.fill (i32.const 65536) (i32.const 0x58) (i32.const 65536))
  (loop $again
    (if (i32.eqz (call $set_method (call $request (call $fields)) (i32.const 9) (i32.const 65536) (i32.const 65536)))
      (then (i32.store (i32.const 2048) (i32.add (i32.load (i32.const 2048)) (i32.const 1)))))
    (br_if $again (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))
  (call $ok (i32.const 2048) (i32.const 4)))
