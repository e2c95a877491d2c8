//! What people write in flags.

use std::io::Read;

use anyhow::Context;

pub use crate::written::{bytes, duration, moment, on_failure};

/// `mail`, or with a weight `mail=3`.
pub fn queue(text: &str) -> Result<(String, Option<u32>), String> {
    let Some((name, weight)) = text.split_once('=') else { return Ok((text.to_owned(), None)) };
    match weight.parse() {
        Ok(weight @ 1..=1000) => Ok((name.to_owned(), Some(weight))),
        _ => Err(format!("weight {weight:?} of queue {name} is not a number from 1 to 1000")),
    }
}

/// JSON as it stands, or the bytes of `@FILE` or of standard input (`-`) as they are.
pub fn payload(text: &str) -> anyhow::Result<Vec<u8>> {
    if text == "-" {
        let mut bytes = Vec::new();
        std::io::stdin().read_to_end(&mut bytes).context("reading the payload from standard input")?;
        return Ok(bytes);
    }
    if let Some(path) = text.strip_prefix('@') {
        return std::fs::read(path).with_context(|| format!("reading the payload from {path}"));
    }
    serde_json::from_str::<serde::de::IgnoredAny>(text)
        .context("the payload is not JSON; write text in double quotes, or pass bytes as they are with @FILE or -")?;
    Ok(text.as_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_may_have_a_weight() {
        assert_eq!(queue("mail"), Ok(("mail".into(), None)));
        assert_eq!(queue("mail=3"), Ok(("mail".into(), Some(3))));
        assert!(queue("mail=0").is_err_and(|error| error.contains("1 to 1000")));
    }
}
