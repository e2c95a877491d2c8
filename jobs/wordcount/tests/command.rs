//! The program as the worker sees it: stdin, stdout, stderr and the exit code.

use std::io::Write;
use std::process::{Command, Output, Stdio};

fn run(payload: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_wordcount"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    child.stdin.take().expect("stdin is a pipe").write_all(payload).expect("the program reads");
    child.wait_with_output().expect("the program ends")
}

#[test]
fn text_is_counted() {
    let output = run(b"the quick brown fox");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(output.stdout, b"{\"lines\":1,\"words\":4,\"characters\":19,\"bytes\":19}\n");
}

#[test]
fn the_exit_code_says_whether_to_try_again() {
    let broken = run(&[0xff]);
    assert_eq!(broken.status.code(), Some(65));
    assert_eq!(broken.stderr, b"payload is not UTF-8: byte 0 of 1 starts no character\n");
    assert_eq!(run(b"").status.code(), Some(75));
}
