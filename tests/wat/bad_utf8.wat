;; Logs bytes that are no text.
(data (i32.const 2048) "\ff\fe\fd")
(func $run (param $at i32) (param $len i32) (result i32)
  (call $log (i32.const 2) (i32.const 2048) (i32.const 3))
  (call $ok (local.get $at) (local.get $len)))
