//! Makes a guest's bytes storable as text. A NUL or broken UTF-8 in a message must not break the write that records it.

/// The longest message that is kept, in bytes: a stack of wrapped errors, not a log.
pub const MESSAGE_BYTES: usize = 8 << 10;
/// The longest backtrace that is kept, in bytes: some 64 frames of mangled names.
pub const BACKTRACE_BYTES: usize = 16 << 10;

/// PostgreSQL's text holds no NUL; it becomes U+FFFD. What is too long is cut at a character, and says so.
pub fn storable(text: &str, limit_bytes: usize) -> String {
    let mut kept = text.replace('\0', "\u{FFFD}");
    if kept.len() > limit_bytes {
        let mut end = limit_bytes;
        while !kept.is_char_boundary(end) {
            end -= 1;
        }
        let dropped = kept.len() - end;
        kept.truncate(end);
        kept.push_str(&format!("... ({dropped} bytes more)"));
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::storable;

    #[test]
    fn nul_is_replaced_and_long_text_is_cut_at_a_character() {
        assert_eq!(storable("a\0b", 10), "a\u{FFFD}b");
        assert_eq!(storable("äöü", 3), "ä... (4 bytes more)");
        assert_eq!(storable("abc", 3), "abc");
    }
}
