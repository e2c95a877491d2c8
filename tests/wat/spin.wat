;; Computes for ever.
(func $run (param i32 i32) (result i32)
  (loop $again (br $again))
  unreachable)
