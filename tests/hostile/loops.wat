;; What never ends, and where.

;;; loop_in_realloc guest alloc=$evil fuel=1000000 -> dead fuel "used all of 1000000 instructions"
;; While the host hands it its payload.
(func $evil (param i32 i32 i32 i32) (result i32) (loop $again (br $again)) unreachable)
(func $run (param i32 i32) (result i32) unreachable)

;;; loop_after_its_return guest fuel=1000000 -> dead fuel
;; With the result on the table already.
(func (export "cabi_post_leasehold:job/handler@1.0.0#run") (param i32) (loop $again (br $again)))
(func $run (param $at i32) (param $len i32) (result i32) (call $ok (local.get $at) (local.get $len)))

;;; loop_in_the_start_of_a_program module fuel=1000000 -> dead fuel
(module
  (func $spin (loop $again (br $again)))
  (start $spin)
  (func (export "_start")))

;;; tail_calls_for_ever guest fuel=1000000 -> dead fuel
;; Calls without an end that need no stack.
(func $one (return_call $other))
(func $other (return_call $one))
(func $run (param i32 i32) (result i32) (call $one) unreachable)

;;; tail_calls_through_a_table guest timeout=60 fuel=9000000000000 -> queued timeout "the limit is 60 ms"
(type $f (func))
(table 1 funcref)
(elem (i32.const 0) $again)
(func $again (return_call_indirect (type $f) (i32.const 0)))
(func $run (param i32 i32) (result i32) (call $again) unreachable)

;;; branch_table_for_ever guest fuel=1000000 -> dead fuel
(func $run (param i32 i32) (result i32)
  (loop $again (br_table $again $again $again (local.get 0)))
  unreachable)

;;; random_numbers_for_ever guest timeout=60 -> queued timeout "60 ms"
(import "wasi_snapshot_preview1" "random_get" (func $random (param i32 i32) (result i32)))
(func $run (param i32 i32) (result i32)
  (loop $again (drop (call $random (i32.const 4096) (i32.const 32768))) (br $again))
  unreachable)

;;; reads_the_clock_for_ever module timeout=60 -> queued timeout
(module
  (import "wasi_snapshot_preview1" "clock_time_get" (func $now (param i32 i64 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "_start") (loop $again (drop (call $now (i32.const 1) (i64.const 0) (i32.const 0))) (br $again))))

;;; yields_for_ever module timeout=60 -> queued timeout
(module
  (import "wasi_snapshot_preview1" "sched_yield" (func $yield (result i32)))
  (memory (export "memory") 1)
  (func (export "_start") (loop $again (drop (call $yield)) (br $again))))

;;; reads_past_the_end_for_ever module timeout=60 -> queued timeout
(module
  (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "_start")
    (i32.store (i32.const 0) (i32.const 1024))
    (i32.store (i32.const 4) (i32.const 1024))
    (loop $again (drop (call $read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8))) (br $again))))

;;; writes_nothing_for_ever module timeout=60 -> queued timeout
;; Empty writes, which some hosts keep.
(module
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "_start") (loop $again (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8))) (br $again))))

;;; writes_nothing_for_ever_in_a_component guest timeout=60 -> queued timeout
(import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
(func $run (param i32 i32) (result i32)
  (i64.store (i32.const 2048) (i64.const 0))
  (loop $again (drop (call $write (i32.const 1) (i32.const 2048) (i32.const 1) (i32.const 2056))) (br $again))
  unreachable)

;;; polls_nothing_for_ever module timeout=60 -> queued timeout
(module
  (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "_start") (loop $again (drop (call $poll (i32.const 0) (i32.const 64) (i32.const 0) (i32.const 128))) (br $again))))

;;; sleeps_a_nanosecond_for_ever module timeout=60 -> queued timeout
(module
  (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "_start")
    (i32.store (i32.const 16) (i32.const 1))
    (i64.store (i32.const 24) (i64.const 1))
    (loop $again (drop (call $poll (i32.const 0) (i32.const 64) (i32.const 1) (i32.const 128))) (br $again))))

;;; sleeps_past_the_end_of_time module timeout=60 -> queued timeout
(module
  (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "_start")
    (i32.store (i32.const 16) (i32.const 1))
    (i64.store (i32.const 24) (i64.const -1))
    (drop (call $poll (i32.const 0) (i32.const 64) (i32.const 1) (i32.const 128)))
    unreachable))

;;; waits_for_a_date_past_the_end_of_time module timeout=60 -> queued timeout
;; By the wall clock, absolute, which is not the sandbox's own timer.
(module
  (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "_start")
    (i64.store (i32.const 24) (i64.const -1))
    (i32.store16 (i32.const 40) (i32.const 1))
    (drop (call $poll (i32.const 0) (i32.const 64) (i32.const 1) (i32.const 128)))
    (loop $again (br $again))))

;;; asks_for_jobs_for_ever guest timeout=60 -> queued timeout
;; Was granted none, and does not take no for an answer.
(import "leasehold:job/host@1.0.0" "enqueue" (func $enqueue (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i64 i32 i32 i32 i32 i32 i32 i32)))
(func $run (param i32 i32) (result i32)
  (loop $again
    (global.set $free (i32.const 4096))
    (call $enqueue (i32.const 2048) (i32.const 4) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)
      (i32.const 0) (i64.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 3000))
    (br $again))
  unreachable)

;;; snoozes_past_the_end_of_time guest -> queued
;; And is not run again and again.
(func $run (param i32 i32) (result i32) (call $snooze (i64.const -1)))

;;; retries_past_the_end_of_time guest -> queued guest_retry "not yet"
(data (i32.const 2048) "not yet")
(func $run (param i32 i32) (result i32) (call $retry (i32.const 2048) (i32.const 7) (i64.const -2)))
