;; A table of which each element takes eight bytes of the memory limit.
(table $t 1 funcref)
(func $run (param $at i32) (param $len i32) (result i32)
  (drop (table.grow $t (ref.null func) (i32.const 20000)))
  (call $ok (local.get $at) (local.get $len)))
