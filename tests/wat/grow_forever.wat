;; Grows its memory until it cannot.
(func $run (param i32 i32) (result i32)
  (loop $again (br_if $again (i32.ne (memory.grow (i32.const 1)) (i32.const -1))))
  unreachable)
