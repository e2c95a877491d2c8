;; What every component guest of the tests shares: a memory, an allocator and the shapes of what `run` may return.
;; A guest's own file defines `$run` (payload's address and length in, address of the answer out).
(module
  (import "leasehold:job/host@1.0.0" "log" (func $log (param i32 i32 i32)))
  (import "leasehold:job/host@1.0.0" "cancel-requested" (func $cancel_requested (result i32)))
  ;;IMPORTS
  (memory (export "memory") 1)
  (global $free (mut i32) (i32.const 4096))
  (global $attempt (mut i32) (i32.const 0))

  ;; Never frees; grows the memory when it is full.
  (func $alloc (export "cabi_realloc") (param $old i32) (param $old_size i32) (param $align i32) (param $size i32) (result i32)
    (local $at i32)
    (local.set $at
      (i32.and
        (i32.add (global.get $free) (i32.sub (local.get $align) (i32.const 1)))
        (i32.sub (i32.const 0) (local.get $align))))
    (global.set $free (i32.add (local.get $at) (local.get $size)))
    (block $fits
      (loop $more
        (br_if $fits (i32.le_u (global.get $free) (i32.mul (memory.size) (i32.const 65536))))
        (if (i32.eq (memory.grow (i32.const 1)) (i32.const -1)) (then unreachable))
        (br $more)))
    (local.get $at))

  (func $ok (param $at i32) (param $len i32) (result i32)
    (i32.store8 (i32.const 1024) (i32.const 0))
    (i32.store (i32.const 1032) (local.get $at))
    (i32.store (i32.const 1036) (local.get $len))
    (i32.const 1024))

  ;; A delay of -1 is none.
  (func $retry (param $at i32) (param $len i32) (param $delay_ms i64) (result i32)
    (i32.store8 (i32.const 1024) (i32.const 1))
    (i32.store8 (i32.const 1032) (i32.const 0))
    (i32.store (i32.const 1040) (local.get $at))
    (i32.store (i32.const 1044) (local.get $len))
    (i32.store8 (i32.const 1048) (i64.ne (local.get $delay_ms) (i64.const -1)))
    (i64.store (i32.const 1056) (local.get $delay_ms))
    (i32.const 1024))

  (func $dead (param $at i32) (param $len i32) (result i32)
    (i32.store8 (i32.const 1024) (i32.const 1))
    (i32.store8 (i32.const 1032) (i32.const 1))
    (i32.store (i32.const 1040) (local.get $at))
    (i32.store (i32.const 1044) (local.get $len))
    (i32.const 1024))

  (func $snooze (param $delay_ms i64) (result i32)
    (i32.store8 (i32.const 1024) (i32.const 1))
    (i32.store8 (i32.const 1032) (i32.const 2))
    (i64.store (i32.const 1040) (local.get $delay_ms))
    (i32.const 1024))

  (func (export "leasehold:job/handler@1.0.0#run")
    (param i64 i32 i32 i32 i32 i32 i32 i32 i32 i64 i32 i32) (result i32)
    (global.set $attempt (local.get 7))
    (call $run (local.get 10) (local.get 11)))

  ;;GUEST
)
