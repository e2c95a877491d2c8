;; Answers that are no answers.

;;; result_ends_past_memory guest -> dead abi
(func $run (param i32 i32) (result i32) (call $ok (i32.const 4096) (i32.const 0x7fffffff)))

;;; result_wraps_around guest -> dead abi
(func $run (param i32 i32) (result i32) (call $ok (i32.const 0xffffffff) (i32.const 0xffffffff)))

;;; answer_lies_past_memory guest -> dead abi
(func $run (param i32 i32) (result i32) (i32.const 0xfffffff0))

;;; answer_is_not_aligned guest -> dead abi
(func $run (param i32 i32) (result i32) (i32.const 1025))

;;; answer_ends_past_memory guest -> dead abi
(func $run (param i32 i32) (result i32) (i32.const 65528))

;;; fails_in_an_unknown_way guest -> dead abi
(func $run (param $at i32) (param $len i32) (result i32)
  (drop (call $dead (local.get $at) (local.get $len)))
  (i32.store8 (i32.const 1032) (i32.const 200))
  (i32.const 1024))

;;; delay_is_neither_there_nor_not guest -> dead abi
(func $run (param $at i32) (param $len i32) (result i32)
  (drop (call $retry (local.get $at) (local.get $len) (i64.const 1)))
  (i32.store8 (i32.const 1048) (i32.const 2))
  (i32.const 1024))

;;; message_ends_past_memory guest -> dead abi
(func $run (param i32 i32) (result i32) (call $dead (i32.const 60000) (i32.const 6000)))

;;; message_is_no_text guest -> dead abi "utf-8"
(data (i32.const 2048) "\c0\80\ed\a0\80")
(func $run (param i32 i32) (result i32) (call $retry (i32.const 2048) (i32.const 5) (i64.const -1)))

;;; message_of_two_megabytes guest -> dead guest_dead "bytes more]"
(func $run (param i32 i32) (result i32)
  (drop (memory.grow (i32.const 40)))
  (memory.fill (i32.const 65536) (i32.const 0x41) (i32.const 2097152))
  (call $dead (i32.const 65536) (i32.const 2097152)))

;;; message_for_the_terminal guest -> queued guest_retry "]0;owned"
(data (i32.const 2048) "\1b]0;owned\07\1b[2J\c2\9b31m\00\e2\80\ae")
(func $run (param i32 i32) (result i32) (call $retry (i32.const 2048) (i32.const 23) (i64.const -1)))

;;; result_of_its_whole_memory guest memory=67108864 -> dead output "65536 bytes"
(func $run (param i32 i32) (result i32)
  (drop (memory.grow (i32.const 1000)))
  (call $ok (i32.const 0) (i32.const 65601536)))

;;; result_of_broken_text guest -> done
;; Not text, not JSON: kept as it is.
(data (i32.const 2048) "\00\ff\fe{\22\ed\a0\80")
(func $run (param i32 i32) (result i32) (call $ok (i32.const 2048) (i32.const 8)))

;;; trap_after_its_return guest -> queued trap
(func (export "cabi_post_leasehold:job/handler@1.0.0#run") (param i32) unreachable)
(func $run (param $at i32) (param $len i32) (result i32) (call $ok (local.get $at) (local.get $len)))

;;; calls_the_host_after_its_return guest -> dead abi "leave"
(func (export "cabi_post_leasehold:job/handler@1.0.0#run") (param i32) (drop (call $cancel_requested)))
(func $run (param $at i32) (param $len i32) (result i32) (call $ok (local.get $at) (local.get $len)))

;;; realloc_gives_what_lies_past_memory guest alloc=$evil -> dead abi
(func $evil (param i32 i32 i32 i32) (result i32) (i32.const 0xffffff00))
(func $run (param i32 i32) (result i32) unreachable)

;;; realloc_traps guest alloc=$evil -> queued trap
(func $evil (param i32 i32 i32 i32) (result i32) unreachable)
(func $run (param i32 i32) (result i32) unreachable)

;;; realloc_calls_the_host guest alloc=$evil -> dead abi "leave"
(func $evil (param i32 i32 i32 i32) (result i32) (call $cancel_requested))
(func $run (param i32 i32) (result i32) unreachable)

;;; result_of_many_small_writes module memory=4194304 -> dead output "65536 bytes"
;; A byte at a time.
(module
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "_start")
    (i32.store (i32.const 0) (i32.const 1024))
    (i32.store (i32.const 4) (i32.const 1))
    (loop $again (br_if $again (i32.eqz (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))))))

;;; floods_stderr module -> queued exit "bytes more]"
;; 13 MB of escapes without a line's end, and then an error: the message is of a bounded length all the same.
(module
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (memory (export "memory") 1)
  (func (export "_start") (local $left i32)
    (memory.fill (i32.const 0) (i32.const 0x1b) (i32.const 65536))
    (i32.store (i32.const 0) (i32.const 16))
    (i32.store (i32.const 4) (i32.const 65520))
    (local.set $left (i32.const 200))
    (loop $again
      (drop (call $write (i32.const 2) (i32.const 0) (i32.const 1) (i32.const 8)))
      (br_if $again (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))
    (call $exit (i32.const 1))))
