//! A module and a folder of cases beside it. Most tests run them in this process: starting another takes a second.

use std::path::{Path, PathBuf};

use leasehold::harness::{CaseError, Harness, Report, TestOptions, load_cases};
use leasehold::job::Limits;
use leasehold::sandbox::SandboxConfig;
use leasehold_tests::binary::{Answer, Files, run};

pub struct Bench {
    pub files: Files,
    pub module: String,
}

/// What came of all cases, in words too.
pub struct Tested {
    pub report: Report,
    /// A line for each case, and below it what is wrong with it.
    pub text: String,
}

impl Tested {
    #[track_caller]
    pub fn passed(self) -> Self {
        assert_eq!(self.report.failed(), 0, "{}", self.text);
        self
    }

    #[track_caller]
    pub fn failed(self, cases: usize, parts: &[&str]) -> Self {
        assert_eq!(self.report.failed(), cases, "{}", self.text);
        says(&self.text, parts);
        self
    }
}

impl Bench {
    pub fn new(module: &[u8], cases: &[(&str, &str)]) -> Self {
        let files = Files::new();
        let module = files.write("guest.wasm", module);
        std::fs::create_dir(files.path("cases")).expect("it is our directory");
        let bench = Self { files, module };
        for (name, text) in cases {
            bench.write(&format!("cases/{name}.toml"), text);
        }
        bench
    }

    pub fn write(&self, name: &str, text: &str) {
        let path = PathBuf::from(self.files.path(name));
        std::fs::create_dir_all(path.parent().expect("it is in a folder")).expect("it is our directory");
        std::fs::write(path, text).expect("it is our directory");
    }

    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.files.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    pub fn harness(&self) -> Harness {
        let config = SandboxConfig { slots: 16, ..SandboxConfig::default() };
        Harness::open_with(Path::new(&self.module), &config).expect("it is a module")
    }

    #[track_caller]
    pub fn test(&self, options: &TestOptions) -> Tested {
        let cases =
            load_cases(Path::new(&self.files.path("cases")), &Limits::default()).expect("the cases are in order");
        let report = self.harness().test_cases(cases, options).expect("they run");
        let mut text = String::new();
        for case in &report.cases {
            let state = if case.passed() { "ok" } else { "FAIL" };
            let problems = case.problems.iter().map(ToString::to_string).chain(case.would_suffice());
            text.push_str(
                &[format!("{state} {}", case.case.name)].into_iter().chain(problems).collect::<Vec<_>>().join("\n"),
            );
            text.push('\n');
        }
        Tested { report, text }
    }

    pub fn errors(&self) -> Vec<CaseError> {
        load_cases(Path::new(&self.files.path("cases")), &Limits::default()).err().unwrap_or_default()
    }

    /// By the command.
    pub async fn command(&self, more: &[&str]) -> Answer {
        run("", &[&["test", &self.module, &self.files.path("cases")], more].concat()).await
    }
}

#[track_caller]
pub fn says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "it does not say {part:?}: {text}");
    }
}
