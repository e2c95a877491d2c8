//! Counts lines, words, characters and bytes. A plain WASI program without the SDK: the payload is on stdin, the result
//! goes to stdout, and the exit code says what became of it. Exit code 65 (EX_DATAERR) makes the job dead, 75
//! (EX_TEMPFAIL) or any other has it run again; the last line on stderr is the message.
//!
//! Example payload: `the quick brown fox`

use std::io::Read;
use std::process::ExitCode;

const EX_DATAERR: u8 = 65;
const EX_TEMPFAIL: u8 = 75;

fn main() -> ExitCode {
    let mut payload = Vec::new();
    if let Err(error) = std::io::stdin().read_to_end(&mut payload) {
        eprintln!("reading the payload from stdin: {error}");
        return ExitCode::from(EX_TEMPFAIL);
    }
    match count(&payload) {
        Ok(counts) => {
            println!("{counts}");
            ExitCode::SUCCESS
        }
        Err((code, message)) => {
            eprintln!("{message}");
            ExitCode::from(code)
        }
    }
}

/// The counts as JSON, or an exit code and why.
fn count(payload: &[u8]) -> Result<String, (u8, String)> {
    if payload.is_empty() {
        return Err((EX_TEMPFAIL, "the payload is empty; perhaps its text is yet to come".to_owned()));
    }
    let text = std::str::from_utf8(payload).map_err(|error| {
        let (at, length) = (error.valid_up_to(), payload.len());
        (EX_DATAERR, format!("payload is not UTF-8: byte {at} of {length} starts no character"))
    })?;
    let (lines, words) = (text.lines().count(), text.split_whitespace().count());
    let (characters, bytes) = (text.chars().count(), text.len());
    Ok(format!(r#"{{"lines":{lines},"words":{words},"characters":{characters},"bytes":{bytes}}}"#))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_counts() {
        let wanted = r#"{"lines":2,"words":3,"characters":13,"bytes":14}"#;
        assert_eq!(count("grün ist\nsie\n".as_bytes()), Ok(wanted.to_owned()));
    }

    #[test]
    fn broken_text_is_refused_for_good() {
        let wanted = "payload is not UTF-8: byte 1 of 3 starts no character";
        assert_eq!(count(&[b'a', 0xff, b'b']), Err((EX_DATAERR, wanted.to_owned())));
    }

    #[test]
    fn no_text_may_come_later() {
        assert!(matches!(count(&[]), Err((EX_TEMPFAIL, _))));
    }
}
