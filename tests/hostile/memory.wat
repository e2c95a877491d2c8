;; More room than it was given.

;;; five_memories module -> dead link "memor"
(module (memory 1) (memory 1) (memory 1) (memory 1) (memory 1) (func (export "_start")))

;;; four_memories_grow_by_turns module -> dead memory "4194304 bytes"
(module
  (memory $a 1) (memory $b 1) (memory $c 1) (memory $d 1)
  (func (export "_start")
    (loop $again
      (drop (memory.grow $a (i32.const 1)))
      (drop (memory.grow $b (i32.const 1)))
      (drop (memory.grow $c (i32.const 1)))
      (drop (memory.grow $d (i32.const 1)))
      (br $again))))

;;; starts_with_more_than_it_may_have guest -> dead memory "4194304 bytes"
(memory $other 100)
(func $run (param $at i32) (param $len i32) (result i32) (call $ok (local.get $at) (local.get $len)))

;;; starts_with_more_than_anybody_may_have module -> dead link "bytes from the start"
(module (memory 60000) (func (export "_start")))

;;; seventeen_tables module -> dead link "table"
(module
  (table 1 funcref) (table 1 funcref) (table 1 funcref) (table 1 funcref) (table 1 funcref) (table 1 funcref)
  (table 1 funcref) (table 1 funcref) (table 1 funcref) (table 1 funcref) (table 1 funcref) (table 1 funcref)
  (table 1 funcref) (table 1 funcref) (table 1 funcref) (table 1 funcref) (table 1 funcref)
  (func (export "_start")))

;;; a_table_larger_than_any_may_be module -> dead link "elements in one table"
(module (table 100001 funcref) (func (export "_start")))

;;; a_table_of_four_billion module -> dead link "elements in one table"
(module (table 4294967295 funcref) (func (export "_start")))

;;; grows_a_table_for_ever guest -> dead memory "table limit of 100000 elements exceeded"
(table $t 1 funcref)
(func $run (param i32 i32) (result i32)
  (loop $again (drop (table.grow $t (ref.null func) (i32.const 1000))) (br $again))
  unreachable)

;;; grows_many_tables guest -> dead memory "4194304 bytes"
;; None of which is too large by itself.
(table $a 1 funcref) (table $b 1 funcref) (table $c 1 funcref) (table $d 1 funcref) (table $e 1 funcref) (table $f 1 funcref)
(func $run (param i32 i32) (result i32)
  (drop (table.grow $a (ref.null func) (i32.const 99000)))
  (drop (table.grow $b (ref.null func) (i32.const 99000)))
  (drop (table.grow $c (ref.null func) (i32.const 99000)))
  (drop (table.grow $d (ref.null func) (i32.const 99000)))
  (drop (table.grow $e (ref.null func) (i32.const 99000)))
  (drop (table.grow $f (ref.null func) (i32.const 99000)))
  unreachable)

;;; grows_by_four_billion_elements guest -> dead memory "table limit"
(table $t 1 funcref)
(func $run (param i32 i32) (result i32)
  (drop (table.grow $t (ref.null func) (i32.const -1)))
  unreachable)

;;; grows_in_realloc guest alloc=$evil -> dead memory "4194304 bytes"
(func $evil (param i32 i32 i32 i32) (result i32)
  (loop $again (drop (memory.grow (i32.const 1))) (br $again))
  unreachable)
(func $run (param i32 i32) (result i32) unreachable)

;;; grows_in_the_start_function module -> dead memory "4194304 bytes"
(module
  (memory 1)
  (func $grow (loop $again (drop (memory.grow (i32.const 7))) (br $again)))
  (start $grow)
  (func (export "_start")))
