//! The beginning of a string that a guest passes. wasmtime copies a string as a whole, and ends a guest that passes
//! more than a bound; a guest must not die of its own logging, however large a line is. So what is beyond the bound is
//! not even looked at.

use std::borrow::Cow;

use wasmtime::component::__internal::wasmtime_environ::component::StringEncoding;
use wasmtime::component::__internal::{CanonicalAbiInfo, InstanceType, InterfaceType, LiftContext};
use wasmtime::component::{ComponentType, Lift};
use wasmtime::{Result, bail};

/// At most `BYTES` of the guest's encoding, and how many there are besides.
pub(super) struct BoundedText<const BYTES: usize> {
    pub text: String,
    pub more_bytes: usize,
}

/// Marks a length that counts UTF-16 in the encoding which is either that or Latin-1.
const UTF16_TAG: usize = 1 << 31;

impl<const BYTES: usize> BoundedText<BYTES> {
    fn new(cx: &LiftContext<'_>, at: u32, len: u32) -> Result<Self> {
        let (at, len) = (at as usize, len as usize);
        let (is_wide, bytes) = match cx.options().string_encoding {
            StringEncoding::Utf8 => (false, len),
            StringEncoding::Utf16 => (true, len * 2),
            StringEncoding::CompactUtf16 if len & UTF16_TAG == 0 => (false, len),
            StringEncoding::CompactUtf16 => (true, (len ^ UTF16_TAG) * 2),
        };
        if !matches!(cx.options().string_encoding, StringEncoding::Utf8) && at % 2 != 0 {
            bail!("string pointer not aligned to 2");
        }
        let Some(all) = at.checked_add(bytes).and_then(|end| cx.memory().get(at..end)) else {
            bail!("string pointer/length out of bounds of memory");
        };
        let kept = &all[..bytes.min(BYTES)];
        let (text, kept_bytes) = match cx.options().string_encoding {
            StringEncoding::Utf8 => utf8(kept, kept.len() < bytes)?,
            StringEncoding::Utf16 | StringEncoding::CompactUtf16 if is_wide => (utf16(kept).into(), kept.len()),
            StringEncoding::Utf16 | StringEncoding::CompactUtf16 => {
                (kept.iter().map(|byte| char::from(*byte)).collect::<String>().into(), kept.len())
            }
        };
        Ok(Self { text: text.into_owned(), more_bytes: bytes - kept_bytes })
    }
}

/// A cut may go through a character; anything else that is wrong is the guest's fault.
fn utf8(bytes: &[u8], is_cut: bool) -> Result<(Cow<'_, str>, usize)> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok((text.into(), bytes.len())),
        Err(error) if is_cut && error.error_len().is_none() => {
            let whole = &bytes[..error.valid_up_to()];
            Ok((String::from_utf8_lossy(whole), whole.len()))
        }
        Err(error) => Err(error.into()),
    }
}

/// Lone halves of a pair, which a cut can make too, become U+FFFD.
fn utf16(bytes: &[u8]) -> String {
    let (units, _odd) = bytes.as_chunks::<2>();
    char::decode_utf16(units.iter().map(|unit| u16::from_le_bytes(*unit)))
        .map(|char| char.unwrap_or(char::REPLACEMENT_CHARACTER))
        .collect()
}

// SAFETY: the same lowered form, ABI and type check as wasmtime's own `str`, to which all of them are left.
unsafe impl<const BYTES: usize> ComponentType for BoundedText<BYTES> {
    type Lower = <str as ComponentType>::Lower;

    const ABI: CanonicalAbiInfo = <str as ComponentType>::ABI;

    fn typecheck(ty: &InterfaceType, types: &InstanceType<'_>) -> Result<()> {
        <str as ComponentType>::typecheck(ty, types)
    }
}

// SAFETY: memory is read through bounds-checked slices only, and any two numbers are fine as pointer and length.
unsafe impl<const BYTES: usize> Lift for BoundedText<BYTES> {
    fn linear_lift_from_flat(cx: &mut LiftContext<'_>, _ty: InterfaceType, src: &Self::Lower) -> Result<Self> {
        Self::new(cx, src[0].get_u32(), src[1].get_u32())
    }

    fn linear_lift_from_memory(cx: &mut LiftContext<'_>, _ty: InterfaceType, bytes: &[u8]) -> Result<Self> {
        let number =
            |at: usize| bytes.get(at..at + 4).and_then(|number| number.try_into().ok()).map(u32::from_le_bytes);
        match (number(0), number(4)) {
            (Some(at), Some(len)) => Self::new(cx, at, len),
            _ => bail!("a string has a pointer and a length"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_through_a_character_leaves_it_out_and_a_broken_one_is_an_error() {
        assert_eq!(utf8("a\u{e4}".as_bytes(), false).expect("it is whole"), ("a\u{e4}".into(), 3));
        assert_eq!(utf8(&"a\u{e4}".as_bytes()[..2], true).expect("it is cut"), ("a".into(), 1));
        assert!(utf8(&"a\u{e4}".as_bytes()[..2], false).is_err(), "nobody cut it");
        assert!(utf8(b"a\xffb", true).is_err());
        assert_eq!(utf16(&[0x61, 0, 0x3d, 0xd8]), "a\u{fffd}");
    }
}
