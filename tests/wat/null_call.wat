(type $f (func (result i32)))
(table 1 funcref)
(func $run (param i32 i32) (result i32)
  (call_indirect (type $f) (i32.const 0)))
