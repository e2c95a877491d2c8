//! A report as JUnit's XML, which most services that build and test can read.

use quick_junit::{NonSuccessKind, Report as Document, TestCase, TestCaseStatus, TestSuite};

use super::{CaseReport, Report};

/// Of several modules' reports one document, each module a suite.
pub fn junit(reports: &[Report]) -> anyhow::Result<String> {
    let mut document = Document::new("leasehold test");
    for report in reports {
        let mut suite = TestSuite::new(&report.module);
        suite.set_time(report.took);
        suite.add_test_cases(report.cases.iter().map(|case| test_case(&report.module, case)));
        document.add_test_suite(suite);
    }
    Ok(document.to_string()?)
}

fn test_case(module: &str, report: &CaseReport) -> TestCase {
    let status = match report.problems.as_slice() {
        [] => TestCaseStatus::success(),
        [first, ..] => {
            let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
            let all: Vec<_> = report.problems.iter().map(ToString::to_string).chain(report.would_suffice()).collect();
            status.set_type(first.what).set_message(first.to_string().lines().next().unwrap_or_default());
            status.set_description(all.join("\n"));
            status
        }
    };
    let usage = &report.tried.run.usage;
    let mut case = TestCase::new(&report.case.name, status);
    case.set_classname(module).set_time(usage.wall).set_system_out(report.tried.run.log.to_text());
    case.add_property(("fuel", usage.fuel.to_string().as_str()));
    case.add_property(("memory_peak_bytes", usage.memory_peak_bytes.to_string().as_str()));
    case
}
