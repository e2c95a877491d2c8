;; Names of others, names twice, and things this worker does not speak.

;;; imports_another_tenants_module module -> dead link "victim::secret"
(module (import "victim" "secret" (func)) (func (export "_start")))

;;; imports_another_tenants_memory module -> dead link "victim::memory"
(module (import "victim" "memory" (memory 1)) (func (export "_start")))

;;; imports_the_hosts_memory module -> dead link "env::memory"
(module (import "env" "memory" (memory 1)) (import "env" "__stack_pointer" (global (mut i32))) (func (export "_start")))

;;; imports_another_tenants_interface component -> dead link "acme:secrets/store@0.1.0"
(component
  (import "acme:secrets/store@0.1.0" (instance (export "get" (func (param "name" string) (result string)))))
  (core module $m (func (export "run") (result i32) (i32.const 0)))
  (core instance $i (instantiate $m))
  (func $run (result (result)) (canon lift (core func $i "run")))
  (instance $command (export "run" (func $run)))
  (export "wasi:cli/run@0.2.0" (instance $command)))

;;; imports_the_network component -> dead link "wasi:http/outgoing-handler@0.2.0"
(component
  (import "wasi:http/outgoing-handler@0.2.0" (instance (export "handle" (func))))
  (core module $m (func (export "run") (result i32) (i32.const 0)))
  (core instance $i (instantiate $m))
  (func $run (result (result)) (canon lift (core func $i "run")))
  (instance $command (export "run" (func $run)))
  (export "wasi:cli/run@0.2.0" (instance $command)))

;;; a_function_by_another_type module -> dead link "fd_write"
(module
  (import "wasi_snapshot_preview1" "fd_write" (func (param i64) (result f64)))
  (func (export "_start")))

;;; an_old_wasi module -> dead link "wasi_unstable::poll_oneoff"
;; Whose poll some hosts do not meter.
(module
  (import "wasi_unstable" "poll_oneoff" (func (param i32 i32 i32 i32) (result i32)))
  (func (export "_start")))

;;; starts_a_thread module -> dead link "wasi::thread-spawn"
(module (import "wasi" "thread-spawn" (func (param i32) (result i32))) (func (export "_start")))

;;; shares_memory module -> dead link "threads"
(module (memory 1 1 shared) (func (export "_start")))

;;; waits_for_another_thread module -> dead link "threads"
(module
  (memory 1)
  (func (export "_start") (drop (memory.atomic.wait32 (i32.const 0) (i32.const 0) (i64.const -1)))))

;;; a_memory_of_64_bits module -> dead link "memory64"
(module (memory i64 1) (func (export "_start")))

;;; a_structure_on_the_heap module -> dead link "gc"
(module (type $s (struct (field i32))) (func (export "_start") (drop (struct.new $s (i32.const 1)))))

;;; an_exception module -> dead link "exceptions"
(module (tag $t) (func (export "_start") (throw $t)))

;;; a_typed_reference module -> dead link "function references"
(module (type $f (func)) (func $g) (elem declare func $g) (func (export "_start") (call_ref $f (ref.func $g))))

;;; a_page_of_one_byte module -> dead link "custom page sizes"
(module (memory 1 (pagesize 1)) (func (export "_start")))

;;; its_start_is_a_memory module -> dead link "_start"
(module (memory (export "_start") 1))

;;; its_start_wants_something module -> dead link "_start must take and return nothing"
(module (func (export "_start") (param i32)))

;;; exports_one_name_twice component -> dead link "conflicts with previous name"
(component
  (core module $m (func (export "run") (result i32) (i32.const 0)))
  (core instance $i (instantiate $m))
  (func $run (result (result)) (canon lift (core func $i "run")))
  (instance $command (export "run" (func $run)))
  (export "wasi:cli/run@0.2.0" (instance $command))
  (export "wasi:cli/run@0.2.0" (instance $command)))

;;; exports_a_handler_and_a_program component -> dead link "it must be func"
;; A name taken in vain is found out by its type.
(component
  (core module $m (func (export "run") (result i32) (i32.const 0)))
  (core instance $i (instantiate $m))
  (func $run (result (result)) (canon lift (core func $i "run")))
  (instance $command (export "run" (func $run)))
  (export "leasehold:job/handler@1.0.0" (instance $command))
  (export "wasi:cli/run@0.2.0" (instance $command)))

;;; exports_two_programs component -> done
(component
  (core module $m (func (export "run") (result i32) (i32.const 0)))
  (core instance $i (instantiate $m))
  (func $run (result (result)) (canon lift (core func $i "run")))
  (instance $command (export "run" (func $run)))
  (export "wasi:cli/run@0.2.0" (instance $command))
  (export "wasi:cli/run@0.2.1" (instance $command)))

;;; a_program_that_answers_with_rubbish component -> dead abi "discriminant"
(component
  (core module $m (func (export "run") (result i32) (i32.const 2)))
  (core instance $i (instantiate $m))
  (func $run (result (result)) (canon lift (core func $i "run")))
  (instance $command (export "run" (func $run)))
  (export "wasi:cli/run@0.2.0" (instance $command)))

;;; metadata_that_is_rubbish module -> dead link "cannot be made into a component"
(module
  (@custom "component-type" "\00\ff\ff\ff\ff\ff\ff\ff")
  (memory (export "memory") 1)
  (func (export "leasehold:job/handler@1.0.0#run") (param i32) (result i32) unreachable))

;;; names_for_the_terminal module -> dead link "]0;owned"
(module (import "\1b]0;owned\07" "\1b[2J\00\e2\80\ae" (func)) (func (export "_start")))
