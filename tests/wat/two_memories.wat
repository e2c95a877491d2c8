;; Two memories that fit alone and not together.
(memory $other 1)
(func $run (param $at i32) (param $len i32) (result i32)
  (drop (memory.grow (i32.const 40)))
  (drop (memory.grow $other (i32.const 40)))
  (call $ok (local.get $at) (local.get $len)))
