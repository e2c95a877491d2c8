;; Looks whether it should cancel until it should, then says so.
(data (i32.const 2048) "cancelled politely")
(func $run (param i32 i32) (result i32)
  (loop $again (br_if $again (i32.eqz (call $cancel_requested))))
  (call $dead (i32.const 2048) (i32.const 18)))
