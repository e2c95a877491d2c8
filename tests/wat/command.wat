;; What every command of the tests shares. The test puts the body of `_start` in.
(module
  (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 400)
  (data (i32.const 2048) "first line\nlast line\n")
  (func $print (param $fd i32) (param $at i32) (param $len i32)
    (i32.store (i32.const 1024) (local.get $at))
    (i32.store (i32.const 1028) (local.get $len))
    (drop (call $write (local.get $fd) (i32.const 1024) (i32.const 1) (i32.const 1032))))
  ;; Copies stdin to stdout, up to 64 KiB at a time.
  (func $cat
    (block $done
      (loop $again
        (i32.store (i32.const 1024) (i32.const 65536))
        (i32.store (i32.const 1028) (i32.const 65536))
        (drop (call $read (i32.const 0) (i32.const 1024) (i32.const 1) (i32.const 1032)))
        (br_if $done (i32.eqz (i32.load (i32.const 1032))))
        (call $print (i32.const 1) (i32.const 65536) (i32.load (i32.const 1032)))
        (br $again))))
  (func (export "_start")
    ;;START
  )
)
