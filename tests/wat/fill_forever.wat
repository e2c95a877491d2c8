;; Lets one instruction write megabytes, for ever.
(func $run (param i32 i32) (result i32)
  (drop (memory.grow (i32.const 50)))
  (loop $again
    (memory.fill (i32.const 65536) (i32.const 1) (i32.const 3276800))
    (br $again))
  unreachable)
