;; Wants more than any 32-bit memory can have, after a growth that went well.
(func $run (param i32 i32) (result i32)
  (drop (memory.grow (i32.const 1)))
  (drop (memory.grow (i32.const 65536)))
  unreachable)
