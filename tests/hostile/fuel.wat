;; One instruction that does the work of a million.

;;; fills_memory_for_free guest fuel=50000000 -> dead fuel "used all of 50000000 instructions"
(func $run (param i32 i32) (result i32)
  (drop (memory.grow (i32.const 50)))
  (loop $again (memory.fill (i32.const 65536) (i32.const 1) (i32.const 3276800)) (br $again))
  unreachable)

;;; copies_memory_for_free guest fuel=50000000 -> dead fuel
(func $run (param i32 i32) (result i32)
  (drop (memory.grow (i32.const 50)))
  (loop $again (memory.copy (i32.const 65537) (i32.const 65536) (i32.const 3276799)) (br $again))
  unreachable)

;;; fills_a_table_for_free guest fuel=50000000 -> dead fuel
(table $t 90000 funcref)
(func $run (param i32 i32) (result i32)
  (loop $again (table.fill $t (i32.const 0) (ref.null func) (i32.const 90000)) (br $again))
  unreachable)

;;; copies_a_table_for_free guest fuel=50000000 -> dead fuel
(table $t 90000 funcref)
(func $run (param i32 i32) (result i32)
  (loop $again (table.copy $t $t (i32.const 1) (i32.const 0) (i32.const 89999)) (br $again))
  unreachable)

;;; initialises_for_free guest fuel=10000000 -> dead fuel
(data $data "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef")
(table $t 10 funcref)
(elem $funcs func $run $run $run $run)
(func $run (param i32 i32) (result i32)
  (loop $again
    (memory.init $data (i32.const 4096) (i32.const 0) (i32.const 64))
    (table.init $t $funcs (i32.const 0) (i32.const 0) (i32.const 4))
    (br $again))
  unreachable)

;;; grows_by_nothing_for_ever guest fuel=10000000 -> dead fuel
(func $run (param i32 i32) (result i32)
  (loop $again (drop (memory.grow (i32.const 0))) (br $again))
  unreachable)

;;; asks_past_its_own_maximum_for_ever guest fuel=10000000 -> dead fuel
;; A memory that said itself how large it can be: the guest gets its -1, each time.
(memory $small 1 2)
(func $run (param i32 i32) (result i32)
  (loop $again (drop (memory.grow $small (i32.const 2))) (br $again))
  unreachable)

;;; out_of_fuel_at_once guest fuel=1 -> dead fuel "used all of 1 instructions"
(func $run (param $at i32) (param $len i32) (result i32) (call $ok (local.get $at) (local.get $len)))
