;; Lies told to the host, and things asked of it that were not granted.

;;; logs_at_a_level_that_is_none guest -> dead abi
(func $run (param i32 i32) (result i32)
  (call $log (i32.const 9) (i32.const 2048) (i32.const 1))
  unreachable)

;;; logs_what_lies_past_memory guest -> dead abi
(func $run (param i32 i32) (result i32)
  (call $log (i32.const 2) (i32.const 65535) (i32.const 2))
  unreachable)

;;; logs_four_gigabytes guest -> dead abi
(func $run (param i32 i32) (result i32)
  (call $log (i32.const 2) (i32.const 1) (i32.const 0xffffffff))
  unreachable)

;;; logs_half_a_character guest -> dead abi "utf-8"
(data (i32.const 2048) "\e2\82")
(func $run (param i32 i32) (result i32)
  (call $log (i32.const 2) (i32.const 2048) (i32.const 2))
  unreachable)

;;; logs_a_million_empty_lines guest -> done
(func $run (param $at i32) (param $len i32) (result i32)
  (local $left i32)
  (local.set $left (i32.const 100000))
  (loop $again
    (call $log (i32.const 0) (i32.const 2048) (i32.const 0))
    (br_if $again (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))
  (call $ok (local.get $at) (local.get $len)))

;;; drops_a_handle_that_is_not_its_own guest -> dead abi "unknown handle index 12345"
(import "wasi:io/streams@0.2.0" "[resource-drop]output-stream" (func $drop (param i32)))
(import "wasi:cli/stdout@0.2.0" "get-stdout" (func $open (result i32)))
(func $run (param i32 i32) (result i32)
  (drop (call $open))
  (call $drop (i32.const 12345))
  unreachable)

;;; drops_a_handle_twice guest -> dead abi "unknown handle index"
(import "wasi:io/streams@0.2.0" "[resource-drop]output-stream" (func $drop (param i32)))
(import "wasi:cli/stdout@0.2.0" "get-stdout" (func $open (result i32)))
(func $run (param i32 i32) (result i32)
  (local $stream i32)
  (local.set $stream (call $open))
  (call $drop (local.get $stream))
  (call $drop (local.get $stream))
  unreachable)

;;; random_numbers_into_nowhere guest -> dead abi
(import "wasi:random/random@0.2.0" "get-random-bytes" (func $random (param i64 i32)))
(func $run (param i32 i32) (result i32)
  (call $random (i64.const 16) (i32.const 0xfffffff0))
  unreachable)

;;; random_numbers_without_number guest -> dead abi
(import "wasi:random/random@0.2.0" "get-random-bytes" (func $random (param i64 i32)))
(func $run (param i32 i32) (result i32)
  (call $random (i64.const -1) (i32.const 2048))
  unreachable)

;;; asks_for_a_job_without_a_grant guest -> done
;; The refusal is an answer; the run ends well, and nothing was put in.
(import "leasehold:job/host@1.0.0" "enqueue" (func $enqueue (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i64 i32 i32 i32 i32 i32 i32 i32)))
(data (i32.const 2048) "echo")
(func $run (param $at i32) (param $len i32) (result i32)
  (call $enqueue (i32.const 2048) (i32.const 4) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)
    (i32.const 0) (i64.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 3000))
  (if (i32.eqz (i32.load8_u (i32.const 3000))) (then unreachable))
  (call $ok (local.get $at) (local.get $len)))

;;; asks_for_a_thousand_jobs guest follow_ups=3 -> done
;; Gets three.
(import "leasehold:job/host@1.0.0" "enqueue" (func $enqueue (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i64 i32 i32 i32 i32 i32 i32 i32)))
(data (i32.const 2048) "put_in")
(func $run (param $at i32) (param $len i32) (result i32)
  (local $left i32)
  (local.set $left (i32.const 1000))
  (loop $again
    (call $enqueue (i32.const 2048) (i32.const 6) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)
      (i32.const 0) (i64.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 3000))
    (br_if $again (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))
  (call $ok (local.get $at) (local.get $len)))

;;; asks_for_jobs_of_megabytes guest follow_ups=1000 memory=8388608 -> done
;; The first has a megabyte, and there is room for three; the last answer must be a refusal.
(import "leasehold:job/host@1.0.0" "enqueue" (func $enqueue (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i64 i32 i32 i32 i32 i32 i32 i32)))
(data (i32.const 2048) "put_in")
(func $run (param $at i32) (param $len i32) (result i32)
  (local $left i32)
  (drop (memory.grow (i32.const 20)))
  (memory.fill (i32.const 65536) (i32.const 0x20) (i32.const 1048576))
  (local.set $left (i32.const 100))
  (loop $again
    (global.set $free (i32.const 4096))
    (call $enqueue (i32.const 2048) (i32.const 6) (i32.const 65536) (i32.const 1048576) (i32.const 0) (i32.const 0) (i32.const 0)
      (i32.const 0) (i32.const 0) (i64.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)
      (i32.const 3000))
    (br_if $again (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))
  (if (i32.eqz (i32.load8_u (i32.const 3000))) (then unreachable))
  (call $ok (local.get $at) (local.get $len)))

;;; asks_for_a_job_and_traps guest follow_ups=10 -> queued trap
(import "leasehold:job/host@1.0.0" "enqueue" (func $enqueue (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i64 i32 i32 i32 i32 i32 i32 i32)))
(data (i32.const 2048) "put_in")
(func $run (param i32 i32) (result i32)
  (call $enqueue (i32.const 2048) (i32.const 6) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)
    (i32.const 0) (i64.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 3000))
  unreachable)

;;; asks_for_another_tenants_job guest follow_ups=10 -> dead follow_up "no module named 'theirs'"
(import "leasehold:job/host@1.0.0" "enqueue" (func $enqueue (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i64 i32 i32 i32 i32 i32 i32 i32)))
(data (i32.const 2048) "theirs")
(func $run (param $at i32) (param $len i32) (result i32)
  (call $enqueue (i32.const 2048) (i32.const 6) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)
    (i32.const 0) (i64.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 3000))
  (call $ok (local.get $at) (local.get $len)))

;;; asks_for_a_job_in_sql guest follow_ups=10 -> dead follow_up "no module named"
(import "leasehold:job/host@1.0.0" "enqueue" (func $enqueue (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i64 i32 i32 i32 i32 i32 i32 i32)))
(data (i32.const 2048) "x'); drop table live_jobs; --")
(func $run (param $at i32) (param $len i32) (result i32)
  (call $enqueue (i32.const 2048) (i32.const 29) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)
    (i32.const 0) (i64.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 3000))
  (call $ok (local.get $at) (local.get $len)))

;;; asks_for_a_job_with_a_nul guest follow_ups=10 -> done
;; No text of the database has one; the guest is told so, and none is put in.
(import "leasehold:job/host@1.0.0" "enqueue" (func $enqueue (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i64 i32 i32 i32 i32 i32 i32 i32)))
(data (i32.const 2048) "put\00in")
(func $run (param $at i32) (param $len i32) (result i32)
  (call $enqueue (i32.const 2048) (i32.const 6) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)
    (i32.const 0) (i64.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 3000))
  (call $ok (local.get $at) (local.get $len)))

;;; asks_for_a_job_with_a_nul_for_a_key guest follow_ups=10 -> done
(import "leasehold:job/host@1.0.0" "enqueue" (func $enqueue (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i64 i32 i32 i32 i32 i32 i32 i32)))
(data (i32.const 2048) "put_in\00key")
(func $run (param $at i32) (param $len i32) (result i32)
  (call $enqueue (i32.const 2048) (i32.const 6) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)
    (i32.const 0) (i64.const 0) (i32.const 1) (i32.const 2054) (i32.const 4) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 3000))
  (call $ok (local.get $at) (local.get $len)))

;;; asks_for_a_job_in_a_queue_of_megabytes guest follow_ups=10 -> dead follow_up
(import "leasehold:job/host@1.0.0" "enqueue" (func $enqueue (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i64 i32 i32 i32 i32 i32 i32 i32)))
(data (i32.const 2048) "put_in")
(func $run (param $at i32) (param $len i32) (result i32)
  (drop (memory.grow (i32.const 40)))
  (memory.fill (i32.const 65536) (i32.const 0x71) (i32.const 2097152))
  (call $enqueue (i32.const 2048) (i32.const 6) (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 65536) (i32.const 2097152)
    (i32.const 0) (i32.const 0) (i64.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)
    (i32.const 3000))
  (call $ok (local.get $at) (local.get $len)))

;;; asks_for_a_job_before_all_others guest follow_ups=10 -> dead follow_up "2147483647"
(import "leasehold:job/host@1.0.0" "enqueue" (func $enqueue (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i64 i32 i32 i32 i32 i32 i32 i32)))
(data (i32.const 2048) "put_in")
(func $run (param $at i32) (param $len i32) (result i32)
  (call $enqueue (i32.const 2048) (i32.const 6) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0x7fffffff)
    (i32.const 0) (i64.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 3000))
  (call $ok (local.get $at) (local.get $len)))
