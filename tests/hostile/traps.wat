;; Each way to trap.

;;; no_message_at_all guest -> queued trap "unreachable"
(func $run (param i32 i32) (result i32) unreachable)

;;; remainder_by_zero guest -> queued trap "divide by zero"
(func $run (param i32 i32) (result i32) (i32.rem_s (i32.const 1) (i32.const 0)))

;;; division_overflows guest -> queued trap "integer overflow"
(func $run (param i32 i32) (result i32) (i32.div_s (i32.const 0x80000000) (i32.const -1)))

;;; nan_is_no_integer guest -> queued trap "invalid conversion to integer"
(func $run (param i32 i32) (result i32) (i32.trunc_f64_s (f64.const nan)))

;;; infinity_is_no_integer guest -> queued trap "integer overflow"
(func $run (param i32 i32) (result i32) (i32.trunc_f32_u (f32.const inf)))

;;; stores_past_memory guest -> queued trap "out of bounds memory access"
(func $run (param i32 i32) (result i32) (i64.store offset=0xffffffff (i32.const -1) (i64.const 1)) unreachable)

;;; vector_past_memory guest -> queued trap "out of bounds memory access"
(func $run (param i32 i32) (result i32) (v128.store (i32.const 65530) (v128.const i64x2 1 2)) unreachable)

;;; fills_past_memory guest -> queued trap "out of bounds memory access"
(func $run (param i32 i32) (result i32) (memory.fill (i32.const 1) (i32.const 0) (i32.const -1)) unreachable)

;;; copies_past_memory guest -> queued trap "out of bounds memory access"
(func $run (param i32 i32) (result i32) (memory.copy (i32.const 0) (i32.const 65535) (i32.const 2)) unreachable)

;;; initialises_from_what_is_dropped guest -> queued trap "out of bounds memory access"
(data $data "gone")
(func $run (param i32 i32) (result i32)
  (data.drop $data)
  (memory.init $data (i32.const 0) (i32.const 0) (i32.const 4))
  unreachable)

;;; table_read_past_its_end guest -> queued trap "out of bounds table access"
(table $t 2 funcref)
(func $run (param i32 i32) (result i32) (drop (table.get $t (i32.const 2))) unreachable)

;;; table_filled_past_its_end guest -> queued trap "out of bounds table access"
(table $t 2 funcref)
(func $run (param i32 i32) (result i32) (table.fill $t (i32.const 1) (ref.null func) (i32.const 2)) unreachable)

;;; calls_past_the_table guest -> queued trap
(type $f (func))
(table 2 funcref)
(func $run (param i32 i32) (result i32) (call_indirect (type $f) (i32.const 2)) unreachable)

;;; calls_by_the_wrong_signature guest -> queued trap "indirect call type mismatch"
(type $f (func (result i64)))
(table 1 funcref)
(elem (i32.const 0) $run)
(func $run (param i32 i32) (result i32) (drop (call_indirect (type $f) (i32.const 0))) unreachable)

;;; data_past_memory module -> queued trap "out of bounds memory access"
(module (memory 1) (data (i32.const 65535) "xy") (func (export "_start")))

;;; elements_past_the_table module -> queued trap "out of bounds table access"
(module (table 1 funcref) (elem (i32.const 1) $f) (func $f (export "_start")))

;;; traps_by_a_name_for_the_terminal module -> queued trap
;; The names in a backtrace are the module's own.
(module
  (func $"\1b]0;owned\07\1b[2J" unreachable)
  (func (export "_start") (call $"\1b]0;owned\07\1b[2J")))

;;; traps_with_rubbish_for_debug_information module -> queued trap "unreachable"
;; Read for each frame of the backtrace.
(module
  (@custom ".debug_info" "\ff\ff\ff\ff\ff\ff\ff\ff\ff\ff\ff\ff\04\00\00\00\00\00\08\01\02\03\04\05\06\07")
  (@custom ".debug_abbrev" "\01\11\01\25\0e\ff\ff\ff\ff\0f\13\05\03\0e")
  (@custom ".debug_line" "\40\00\00\00\04\00\ff\ff\ff\7f\01\01\01\fb\0e\0d\00\01\01\01\01\00\00\00\01\00\00\01")
  (@custom ".debug_str" "\ff\ff\ff")
  (@custom ".debug_ranges" "\00\00\00\00\ff\ff\ff\ff")
  (func (export "_start") unreachable))
