//! Modules compiled by a process of their own: within limits, kept for the next time, and never trusted unseen.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use leasehold::job::ModuleKind;
use leasehold::sandbox::{
    CodeCacheConfig, CompileLimits, Compiler, CompilerProcess, Inspection, PrepareError, RunControl, Sandbox,
    SandboxConfig,
};
use leasehold_tests::binary;
use leasehold_tests::guests::{LIMITS, command, core, job, result};

/// A directory of a test's own that goes with it.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("leasehold-compiler-{:016x}", rand::random::<u64>()));
        fs::create_dir(&path).expect("a scratch directory");
        Self(path)
    }

    fn cache(&self) -> CodeCacheConfig {
        CodeCacheConfig { dir: self.0.join("cache"), max_bytes: 1 << 30 }
    }

    /// All compiled modules that are kept.
    fn entries(&self) -> Vec<PathBuf> {
        let files = fs::read_dir(self.cache().dir).expect("the cache is there");
        let paths = files.map(|file| file.expect("it can be listed").path());
        paths.filter(|path| path.extension().is_some_and(|extension| extension == "code")).collect()
    }

    fn entry(&self) -> PathBuf {
        let [entry] = self.entries().try_into().expect("one entry");
        entry
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn sandbox(program: &Path, limits: CompileLimits, cache: Option<CodeCacheConfig>) -> Sandbox {
    let compiler = Compiler::Process(CompilerProcess { program: program.to_owned(), limits, cache });
    Sandbox::new(&SandboxConfig { slots: 2, memory_bytes: 128 << 20, compiler, profiling: false })
        .expect("the sandbox starts")
}

/// As a worker that starts anew has it.
fn with_cache(scratch: &Scratch) -> Sandbox {
    sandbox(binary::built(), CompileLimits::default(), Some(scratch.cache()))
}

/// One whose compiler is gone: it runs only what is kept.
fn without_compiler(scratch: &Scratch) -> Sandbox {
    sandbox(Path::new("/nowhere/leasehold"), CompileLimits::default(), Some(scratch.cache()))
}

fn refusal(sandbox: &Sandbox, bytes: &[u8]) -> PrepareError {
    sandbox.prepare(bytes).err().expect("it must not prepare")
}

/// Passes the survey, which knows nothing of it, and takes the compiler some seconds: many values alive at once.
fn slow() -> Vec<u8> {
    let body: String = (0..9_000).map(|n| format!("(i64.load (i32.const {n}))")).collect();
    let adds = "(i64.add)".repeat(8_999);
    let function = format!("(func (result i64) {body} {adds})").replace("(i64.add)", "i64.add ");
    let text = format!("(module (memory 1) {} (func (export \"_start\")))", function.repeat(20));
    wat::parse_str(&text).expect("it parses")
}

#[tokio::test]
async fn what_another_process_compiled_runs_here() {
    let sandbox = sandbox(binary::built(), CompileLimits::default(), None);
    let module = sandbox.prepare(&core("echo")).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(module.kind(), ModuleKind::Component);
    let echoed = sandbox.run(&module, job(b"hello"), &LIMITS, &RunControl::new()).await;
    assert_eq!(result(&echoed), b"hello");
    let program = sandbox.prepare(&command("(call $cat)")).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(program.kind(), ModuleKind::Command);
    let limits = leasehold::job::Limits { memory_bytes: 64 << 20, ..LIMITS };
    let copied = sandbox.run(&program, job(b"copy"), &limits, &RunControl::new()).await;
    assert_eq!(result(&copied), b"copy");
}

#[test]
fn the_verdict_is_the_same_wherever_it_is_compiled() {
    let scratch = Scratch::new();
    let here = Sandbox::new(&SandboxConfig {
        slots: 2,
        memory_bytes: 128 << 20,
        compiler: Compiler::InProcess,
        profiling: false,
    });
    let here = here.expect("the sandbox starts");
    let (there, again) = (with_cache(&scratch), with_cache(&scratch));
    // What it took is told, and differs.
    let timeless =
        |inspection: Inspection| Inspection { compile_time: Duration::ZERO, compile_peak_bytes: None, ..inspection };
    let text = |text: &str| wat::parse_str(text).expect("it parses");
    let mut torn = core("echo");
    torn.truncate(torn.len() / 2);
    for module in [
        core("echo"),
        command("(call $cat)"),
        text("(module (func (export \"_start\") (loop (loop))))"),
        text("(module (func))"),
        text("(module (memory 60000) (func (export \"_start\")))"),
        text("(module (import \"env\" \"frob\" (func)) (func (export \"_start\")))"),
        text("(component)"),
        text(&format!("(module {} (func (export \"_start\")))", "(table 100000 funcref)".repeat(3))),
        torn,
        b"garbage".to_vec(),
        Vec::new(),
    ] {
        let expected = timeless(here.inspect(&module));
        assert_eq!(timeless(there.inspect(&module)), expected);
        assert_eq!(timeless(again.inspect(&module)), expected, "from the cache");
    }
}

#[test]
fn a_module_that_takes_too_long_is_given_up_and_the_next_one_is_not() {
    let limits = CompileLimits::new(1, CompileLimits::DEFAULT_MEMORY_BYTES);
    let (sandbox, slow) = (sandbox(binary::built(), limits, None), slow());
    let started = Instant::now();
    assert_eq!(refusal(&sandbox, &slow), PrepareError::CompileTime { limit_seconds: 1 });
    assert!(started.elapsed() < limits.wall, "it took {:?}", started.elapsed());
    sandbox.prepare(&core("echo")).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn a_module_that_takes_too_much_memory_is_given_up_and_the_next_one_is_not() {
    let limits = CompileLimits::new(600, CompileLimits::MIN_MEMORY_BYTES);
    let sandbox = sandbox(binary::built(), limits, None);
    // As much code in each function as there may be, of which two at least are compiled at once.
    let body: String = (0..130_000).map(|n| format!("(drop (i64.load (i32.const {n})))")).collect();
    let function = format!("(func {body})");
    let big = format!("(module (memory 1) {} (func (export \"_start\")))", function.repeat(4));
    let big = wat::parse_str(big).expect("it parses");
    let error = refusal(&sandbox, &big);
    assert!(matches!(error, PrepareError::CompileMemory { limit: CompileLimits::MIN_MEMORY_BYTES, .. }), "{error}");
    assert!(error.to_string().contains("more than the limit of 536870912 bytes of memory"), "{error}");
    sandbox.prepare(&core("echo")).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn a_compiler_that_gets_no_time_is_the_hosts_fault() {
    let limits = CompileLimits { wall: Duration::from_millis(100), ..CompileLimits::default() };
    let (impatient, slow) = (sandbox(binary::built(), limits, None), slow());
    let started = Instant::now();
    let error = refusal(&impatient, &slow);
    assert!(matches!(error, PrepareError::Host(_)), "{error}");
    assert!(started.elapsed() < Duration::from_secs(20), "it took {:?}", started.elapsed());
    let scratch = Scratch::new();
    assert!(matches!(refusal(&without_compiler(&scratch), &core("echo")), PrepareError::Host(_)));
    // Another program than ours answers nothing that we would run.
    let other = refusal(&sandbox(Path::new("/bin/true"), CompileLimits::default(), None), &core("echo"));
    assert!(matches!(other, PrepareError::Host(_)), "{other}");
}

#[test]
fn a_worker_that_starts_anew_compiles_nothing_anew() {
    let scratch = Scratch::new();
    let modules = [core("echo"), command("(call $cat)")];
    let first = with_cache(&scratch);
    for module in &modules {
        first.prepare(module).unwrap_or_else(|error| panic!("{error}"));
    }
    drop(first);
    let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    let dir = scratch.cache().dir;
    assert_eq!(mode(&dir), 0o700);
    for file in fs::read_dir(&dir).expect("the cache is there") {
        assert_eq!(mode(&file.expect("it can be listed").path()), 0o600);
    }
    let second = without_compiler(&scratch);
    for module in &modules {
        second.prepare(module).unwrap_or_else(|error| panic!("{error}"));
    }
    // What is refused is not kept.
    assert_eq!(scratch.entries().len(), 2);
}

/// Does something to the one entry that is kept, and sees that it is refused and made anew.
#[track_caller]
fn assert_rebuilt(what: &str, tamper: impl FnOnce(&Scratch, &Path)) {
    let scratch = Scratch::new();
    let module = core("echo");
    with_cache(&scratch).prepare(&module).unwrap_or_else(|error| panic!("{error}"));
    tamper(&scratch, &scratch.entry());
    let error = refusal(&without_compiler(&scratch), &module);
    assert!(matches!(error, PrepareError::Host(_)), "{what}: {error}");
    with_cache(&scratch).prepare(&module).unwrap_or_else(|error| panic!("{what}: {error}"));
    without_compiler(&scratch).prepare(&module).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(fs::symlink_metadata(scratch.entry()).is_ok_and(|data| data.is_file()), "{what}");
}

#[test]
fn an_entry_that_somebody_changed_is_made_anew() {
    for at in [0, 31, 32, 40, 5_000] {
        assert_rebuilt(&format!("byte {at}"), |_, entry| {
            let mut bytes = fs::read(entry).expect("it is ours");
            bytes[at] ^= 1;
            fs::write(entry, bytes).expect("it is ours");
        });
    }
    for left in [0, 10, 32, 1_000] {
        assert_rebuilt(&format!("cut to {left} bytes"), |_, entry| {
            let bytes = fs::read(entry).expect("it is ours");
            fs::write(entry, &bytes[..left]).expect("it is ours");
        });
    }
    assert_rebuilt("longer", |_, entry| {
        let mut bytes = fs::read(entry).expect("it is ours");
        bytes.push(0);
        fs::write(entry, bytes).expect("it is ours");
    });
}

#[test]
fn an_entry_of_something_else_is_made_anew() {
    assert_rebuilt("another module's", |scratch, entry| {
        // Well authenticated, and of the same version, but of other bytes.
        with_cache(scratch).prepare(&core("says")).unwrap_or_else(|error| panic!("{error}"));
        let other = scratch.entries().into_iter().find(|path| path != entry).expect("another entry");
        fs::rename(other, entry).expect("they are ours");
    });
    assert_rebuilt("another host's", |_, entry| {
        let elsewhere = Scratch::new();
        with_cache(&elsewhere).prepare(&core("echo")).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(elsewhere.entry().file_name(), entry.file_name());
        fs::copy(elsewhere.entry(), entry).expect("they are ours");
    });
    for key in [&[0; 32][..], &[0; 31], &[]] {
        assert_rebuilt("another key", |scratch, _| {
            fs::write(scratch.cache().dir.join("key"), key).expect("it is ours");
        });
    }
    assert_rebuilt("a key for all to read", |scratch, _| {
        let key = scratch.cache().dir.join("key");
        fs::set_permissions(key, fs::Permissions::from_mode(0o644)).expect("it is ours");
    });
    assert_rebuilt("a key elsewhere", |scratch, _| {
        let (key, moved) = (scratch.cache().dir.join("key"), scratch.0.join("moved"));
        fs::rename(&key, &moved).expect("it is ours");
        symlink(moved, key).expect("it is free");
    });
}

#[test]
fn an_entry_that_is_not_a_file_of_our_own_is_made_anew() {
    assert_rebuilt("a link", |scratch, entry| {
        let moved = scratch.0.join("moved");
        fs::rename(entry, &moved).expect("it is ours");
        symlink(moved, entry).expect("it is free");
    });
    assert_rebuilt("a directory", |_, entry| {
        fs::remove_file(entry).expect("it is ours");
        fs::create_dir(entry).expect("it is free");
    });
    for mode in [0o604, 0o640, 0o606] {
        assert_rebuilt(&format!("mode {mode:o}"), |_, entry| {
            fs::set_permissions(entry, fs::Permissions::from_mode(mode)).expect("it is ours");
        });
    }
    for mode in [0o755, 0o770, 0o701] {
        assert_rebuilt(&format!("a directory of mode {mode:o}"), |scratch, _| {
            fs::set_permissions(scratch.cache().dir, fs::Permissions::from_mode(mode)).expect("it is ours");
        });
    }
}

#[test]
fn a_directory_that_is_not_ours_alone_is_not_used_and_not_needed() {
    let scratch = Scratch::new();
    let module = core("echo");
    let elsewhere = scratch.0.join("elsewhere");
    fs::create_dir(&elsewhere).expect("it is free");
    symlink(&elsewhere, scratch.cache().dir).expect("it is free");
    with_cache(&scratch).prepare(&module).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(fs::read_dir(&elsewhere).expect("it is there").count(), 0);
    fs::remove_file(scratch.cache().dir).expect("it is ours");
    fs::write(scratch.cache().dir, "").expect("it is free");
    with_cache(&scratch).prepare(&module).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn the_cache_is_bounded_and_the_least_recently_used_goes_first() {
    let scratch = Scratch::new();
    let program = |number: u32| command(&format!("(drop (i32.const {number}))"));
    with_cache(&scratch).prepare(&program(1)).unwrap_or_else(|error| panic!("{error}"));
    let bytes = fs::metadata(scratch.entry()).expect("it is there").len();
    let room_for_two = CodeCacheConfig { max_bytes: 2 * bytes + bytes / 2, ..scratch.cache() };
    let small = sandbox(binary::built(), CompileLimits::default(), Some(room_for_two));
    let kept = |number| without_compiler(&scratch).prepare(&program(number)).is_ok();
    small.prepare(&program(2)).unwrap_or_else(|error| panic!("{error}"));
    // Which is a use of it.
    assert!(kept(1));
    small.prepare(&program(3)).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((kept(1), kept(2), kept(3)), (true, false, true));
}
