;; WASI programs that try each door.

;;; opens_files_by_every_descriptor module -> done
;; Exits with 1 if one lets it: through a descriptor that nobody gave it, or out of a directory that is not there.
(module
  (import "wasi_snapshot_preview1" "path_open" (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_filestat_get" (func $stat (param i32 i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_create_directory" (func $mkdir (param i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_unlink_file" (func $unlink (param i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_symlink" (func $symlink (param i32 i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_rename" (func $rename (param i32 i32 i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_prestat_get" (func $prestat (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_readdir" (func $readdir (param i32 i32 i32 i64 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (memory (export "memory") 1)
  (data (i32.const 1024) "/etc/passwd../../etc/passwd.")
  (func $must_fail (param i32) (if (i32.eqz (local.get 0)) (then (call $exit (i32.const 1)))))
  (func (export "_start") (local $fd i32)
    (loop $again
      (call $must_fail (call $open (local.get $fd) (i32.const 1) (i32.const 1024) (i32.const 11) (i32.const 0) (i64.const 2) (i64.const 2) (i32.const 0) (i32.const 0)))
      (call $must_fail (call $open (local.get $fd) (i32.const 0) (i32.const 1035) (i32.const 16) (i32.const 0) (i64.const 2) (i64.const 0) (i32.const 0) (i32.const 0)))
      (call $must_fail (call $open (local.get $fd) (i32.const 0) (i32.const 1051) (i32.const 1) (i32.const 2) (i64.const 2) (i64.const 0) (i32.const 0) (i32.const 0)))
      (call $must_fail (call $stat (local.get $fd) (i32.const 0) (i32.const 1024) (i32.const 11) (i32.const 0)))
      (call $must_fail (call $mkdir (local.get $fd) (i32.const 1028) (i32.const 3)))
      (call $must_fail (call $unlink (local.get $fd) (i32.const 1024) (i32.const 11)))
      (call $must_fail (call $symlink (i32.const 1024) (i32.const 11) (local.get $fd) (i32.const 1028) (i32.const 3)))
      (call $must_fail (call $rename (local.get $fd) (i32.const 1024) (i32.const 11) (local.get $fd) (i32.const 1028) (i32.const 3)))
      (call $must_fail (call $prestat (local.get $fd) (i32.const 0)))
      (call $must_fail (call $readdir (local.get $fd) (i32.const 0) (i32.const 512) (i64.const 0) (i32.const 600)))
      (br_if $again (i32.lt_u (local.tee $fd (i32.add (local.get $fd) (i32.const 1))) (i32.const 200))))
    (call $must_fail (call $open (i32.const -1) (i32.const 1) (i32.const 1024) (i32.const 11) (i32.const 0) (i64.const 2) (i64.const 2) (i32.const 0) (i32.const 0)))))

;;; accepts_on_every_descriptor module -> done
(module
  (import "wasi_snapshot_preview1" "sock_accept" (func $accept (param i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "sock_recv" (func $recv (param i32 i32 i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "sock_send" (func $send (param i32 i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "sock_shutdown" (func $shutdown (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (memory (export "memory") 1)
  (func $must_fail (param i32) (if (i32.eqz (local.get 0)) (then (call $exit (i32.const 1)))))
  (func (export "_start") (local $fd i32)
    (loop $again
      (call $must_fail (call $accept (local.get $fd) (i32.const 0) (i32.const 0)))
      (call $must_fail (call $recv (local.get $fd) (i32.const 64) (i32.const 1) (i32.const 0) (i32.const 0) (i32.const 4)))
      (call $must_fail (call $send (local.get $fd) (i32.const 64) (i32.const 1) (i32.const 0) (i32.const 0)))
      (call $must_fail (call $shutdown (local.get $fd) (i32.const 3)))
      (br_if $again (i32.lt_u (local.tee $fd (i32.add (local.get $fd) (i32.const 1))) (i32.const 100))))))

;;; closes_and_renumbers_its_streams module -> done
(module
  (import "wasi_snapshot_preview1" "fd_close" (func $close (param i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_renumber" (func $renumber (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_seek" (func $seek (param i32 i64 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_allocate" (func $allocate (param i32 i64 i64) (result i32)))
  (import "wasi_snapshot_preview1" "fd_filestat_set_size" (func $truncate (param i32 i64) (result i32)))
  (memory (export "memory") 1)
  (func (export "_start") (local $left i32)
    (local.set $left (i32.const 1000))
    (loop $again
      (drop (call $renumber (i32.const 1) (i32.const 2)))
      (drop (call $renumber (i32.const 2) (i32.const 0x7fffffff)))
      (drop (call $renumber (i32.const 0) (i32.const -1)))
      (drop (call $seek (i32.const 0) (i64.const -1) (i32.const 2) (i32.const 64)))
      (drop (call $allocate (i32.const 1) (i64.const -1) (i64.const -1)))
      (drop (call $truncate (i32.const 2) (i64.const 0x7fffffffffffffff)))
      (drop (call $close (local.get $left)))
      (br_if $again (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))
    (drop (call $close (i32.const 0)))
    (drop (call $close (i32.const 0)))
    (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 64)))))

;;; writes_what_lies_past_its_memory module -> dead abi "out of bounds"
(module
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "\00\ff\00\00\ff\ff\00\00")
  (func (export "_start") (drop (call $write (i32.const 2) (i32.const 0) (i32.const 1) (i32.const 64)))))

;;; writes_a_list_past_its_memory module -> dead abi "out of bounds"
(module
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "\00\ff\00\00\ff\ff\00\00")
  (func (export "_start") (drop (call $write (i32.const 2) (i32.const 65528) (i32.const 2) (i32.const 64)))))

;;; writes_a_list_longer_than_its_memory module -> done
(module
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "\00\ff\00\00\ff\ff\00\00")
  (func (export "_start") (drop (call $write (i32.const 2) (i32.const 8) (i32.const 0x20000000) (i32.const 64)))))

;;; writes_a_list_that_wraps_around module -> done
(module
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "\00\ff\00\00\ff\ff\00\00")
  (func (export "_start") (drop (call $write (i32.const 2) (i32.const 0xfffffff8) (i32.const 0x20000001) (i32.const 64)))))

;;; writes_a_list_that_is_not_aligned module -> dead abi "not aligned"
(module
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "\00\ff\00\00\ff\ff\00\00")
  (func (export "_start") (drop (call $write (i32.const 2) (i32.const 3) (i32.const 1) (i32.const 64)))))

;;; wants_its_answer_past_its_memory module -> dead abi
(module
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "\00\ff\00\00\ff\ff\00\00")
  (func (export "_start") (drop (call $write (i32.const 2) (i32.const 8) (i32.const 0) (i32.const 65534)))))

;;; wants_rights_that_are_none module -> dead abi
(module
  (import "wasi_snapshot_preview1" "path_open" (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "_start")
    (drop (call $open (i32.const 3) (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 0) (i64.const -1) (i64.const -1) (i32.const 0) (i32.const 0)))))

;;; writes_from_a_million_places module memory=16777216 result=1024 -> dead output "1024 bytes"
;; One call with as many pieces as its memory can name.
(module
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 200)
  (func (export "_start") (local $at i32)
    (loop $again
      (i32.store (local.get $at) (i32.const 0))
      (i32.store offset=4 (local.get $at) (i32.const 65536))
      (br_if $again (i32.lt_u (local.tee $at (i32.add (local.get $at) (i32.const 8))) (i32.const 8388608))))
    (loop $more
      (br_if $more (i32.eqz (call $write (i32.const 1) (i32.const 0) (i32.const 1048576) (i32.const 9000000)))))))

;;; waits_for_half_a_million_clocks module memory=67108864 timeout=5000 -> dead abi "holds 4096 handles"
;; One call with as many subscriptions as its memory can hold.
(module
  (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 700)
  (func (export "_start") (local $at i32)
    (loop $again
      (i32.store offset=16 (local.get $at) (i32.const 1))
      (i64.store offset=24 (local.get $at) (i64.const 3600000000000))
      (br_if $again (i32.lt_u (local.tee $at (i32.add (local.get $at) (i32.const 48))) (i32.const 24000000))))
    (drop (call $poll (i32.const 0) (i32.const 25000000) (i32.const 500000) (i32.const 45000000)))
    (loop $spin (br $spin))))

;;; waits_for_more_clocks_than_there_is_memory module timeout=300 -> dead abi "not aligned"
(module
  (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (memory (export "memory") 1)
  (func (export "_start")
    (if (i32.eqz (call $poll (i32.const 0) (i32.const 1024) (i32.const -1) (i32.const 64))) (then (call $exit (i32.const 1))))
    (if (i32.eqz (call $poll (i32.const 65500) (i32.const 1024) (i32.const 1) (i32.const 64))) (then (call $exit (i32.const 1))))
    (if (i32.eqz (call $poll (i32.const 0) (i32.const 65530) (i32.const 1) (i32.const 64))) (then (call $exit (i32.const 1))))))

;;; random_numbers_past_its_memory module -> dead abi "2147483647 exceeds limit 1048576"
(module
  (import "wasi_snapshot_preview1" "random_get" (func $random (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (memory (export "memory") 1)
  (func (export "_start")
    (if (i32.eqz (call $random (i32.const 65535) (i32.const 0x7fffffff))) (then (call $exit (i32.const 1))))))

;;; has_no_memory_to_write_from module -> dead abi "memory"
(module
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (func (export "_start") (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 0)))))

;;; its_memory_is_a_function module -> dead abi "memory"
(module
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (func (export "memory"))
  (func (export "_start") (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 0)))))

;;; exits_with_minus_one module -> queued exit "exit code -1"
(module
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (func (export "_start") (call $exit (i32.const -1))))

;;; exits_as_after_an_abort module -> queued exit "exit code 134"
(module
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (func (export "_start") (call $exit (i32.const 134))))

;;; exits_before_it_starts module -> done
(module
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (func $start (call $exit (i32.const 0)))
  (start $start)
  (func (export "_start") unreachable))

;;; exits_in_realloc guest alloc=$evil -> dead abi "leave"
;; Where nothing but its memory may be touched.
(import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
(func $evil (param i32 i32 i32 i32) (result i32) (call $exit (i32.const 0)) unreachable)
(func $run (param i32 i32) (result i32) unreachable)

;;; raises_a_signal module -> queued trap "unreachable"
(module
  (import "wasi_snapshot_preview1" "proc_raise" (func $raise (param i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "_start") (drop (call $raise (i32.const 9))) unreachable))

;;; starts_itself_again module -> dead stack
;; `_start` may run once.
(module (func $start (export "_start") (call $start) (call $start)))
