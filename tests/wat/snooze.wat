;; Wants to be run again in a minute.
(func $run (param i32 i32) (result i32)
  (call $snooze (i64.const 60000)))
