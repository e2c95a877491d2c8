;; Calls inside calls, and host calls at the bottom of them.

;;; recursion_with_big_frames guest -> dead stack "524288 bytes"
(func $deep (param i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64) (result i64)
  (i64.add
    (call $deep (local.get 1) (local.get 2) (local.get 3) (local.get 4) (local.get 5) (local.get 6) (local.get 7)
      (local.get 8) (local.get 9) (local.get 10) (local.get 11) (local.get 12) (local.get 13) (local.get 14)
      (local.get 15) (local.get 16) (local.get 17) (local.get 18) (local.get 19) (local.get 0))
    (local.get 7)))
(func $run (param i32 i32) (result i32)
  (i32.wrap_i64 (call $deep (i64.const 0) (i64.const 1) (i64.const 2) (i64.const 3) (i64.const 4) (i64.const 5)
    (i64.const 6) (i64.const 7) (i64.const 8) (i64.const 9) (i64.const 10) (i64.const 11) (i64.const 12) (i64.const 13)
    (i64.const 14) (i64.const 15) (i64.const 16) (i64.const 17) (i64.const 18) (i64.const 19))))

;;; recursion_through_a_table guest -> dead stack
(type $f (func (param i32) (result i32)))
(table 1 funcref)
(elem (i32.const 0) $deeper)
(func $deeper (type $f) (i32.add (call_indirect (type $f) (local.get 0) (i32.const 0)) (i32.const 1)))
(func $run (param i32 i32) (result i32) (call $deeper (i32.const 0)))

;;; recursion_in_the_start_function module -> dead stack
(module
  (func $deeper (result i32) (i32.add (call $deeper) (i32.const 1)))
  (func $start (drop (call $deeper)))
  (start $start)
  (func (export "_start")))

;;; recursion_in_realloc guest alloc=$evil -> dead stack
(func $evil (param i32 i32 i32 i32) (result i32)
  (i32.add (call $evil (local.get 0) (local.get 1) (local.get 2) (local.get 3)) (i32.const 1)))
(func $run (param i32 i32) (result i32) unreachable)

;;; asks_the_host_at_every_depth guest -> dead stack
;; Until there is too little stack left for what calls the host, or for the host.
(func $deeper (result i32) (i32.add (i32.add (call $cancel_requested) (call $deeper)) (i32.const 1)))
(func $run (param i32 i32) (result i32) (call $deeper))

;;; logs_at_every_depth guest -> dead stack
(func $deeper (result i32)
  (call $log (i32.const 2) (i32.const 2048) (i32.const 100))
  (i32.add (call $deeper) (i32.const 1)))
(func $run (param i32 i32) (result i32) (call $deeper))

;;; writes_at_every_depth module -> dead stack
(module
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func $deeper (result i32)
    (drop (call $write (i32.const 2) (i32.const 0) (i32.const 1) (i32.const 8)))
    (i32.add (call $deeper) (i32.const 1)))
  (func (export "_start")
    (i32.store (i32.const 0) (i32.const 1024))
    (i32.store (i32.const 4) (i32.const 100))
    (drop (call $deeper))))

;;; sleeps_at_every_depth module -> dead stack
;; Leaves the host in the middle of a call, deeper each time.
(module
  (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func $deeper (param $depth i32) (result i32)
    (if (i32.eqz (i32.rem_u (local.get $depth) (i32.const 500)))
      (then (drop (call $poll (i32.const 0) (i32.const 64) (i32.const 1) (i32.const 128)))))
    (i32.add (call $deeper (i32.add (local.get $depth) (i32.const 1))) (i32.const 1)))
  (func (export "_start")
    (i32.store (i32.const 16) (i32.const 1))
    (i64.store (i32.const 24) (i64.const 1000))
    (drop (call $deeper (i32.const 0)))))
