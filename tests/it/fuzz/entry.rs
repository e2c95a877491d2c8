//! Gives a generated module, which exports what it likes, the entry of a program.

const FUNC: u8 = 0x60;
const END: u8 = 0x0b;
const CALL: u8 = 0x10;
const TYPES: u8 = 1;
const FUNCTIONS: u8 = 3;
const EXPORTS: u8 = 7;
const CODE: u8 = 10;
/// The order that sections have; the count of data segments comes before the code.
const ORDER: [u8; 13] = [1, 2, 3, 4, 5, 13, 6, 7, 8, 9, 12, 10, 11];
/// How many of its own functions the entry calls.
const CALLS: usize = 16;

/// Adds a `_start` that calls those of the module's functions which want nothing and give nothing. None where there is
/// something in the module that is not looked into here (imports, types of other kinds).
pub fn with_entry(module: &[u8]) -> Option<Vec<u8>> {
    let mut sections = Vec::new();
    let mut rest = module.get(8..)?;
    while let Some((id, after)) = rest.split_first() {
        let (length, after) = number(after)?;
        let (content, after) = after.split_at_checked(length)?;
        sections.push((*id, content.to_vec()));
        rest = after;
    }
    if sections.iter().any(|(id, content)| *id == 2 && content.first() != Some(&0)) {
        return None;
    }
    let content = |id| sections.iter().find(|(of, _)| *of == id).map_or(&[0][..], |(_, content)| &content[..]);
    let (types, plain) = plain_types(content(TYPES))?;
    let functions = functions(content(FUNCTIONS))?;
    let mut body = vec![0];
    for (index, _) in functions.iter().enumerate().filter(|(_, ty)| plain.contains(ty)).take(CALLS) {
        body.push(CALL);
        write(&mut body, index);
    }
    body.push(END);
    let mut export = b"\x06_start\0".to_vec();
    write(&mut export, functions.len());
    let mut sized = Vec::new();
    write(&mut sized, body.len());
    sized.extend(body);
    let mut of_type = Vec::new();
    write(&mut of_type, types);
    for (id, item) in [(TYPES, vec![FUNC, 0, 0]), (FUNCTIONS, of_type), (EXPORTS, export), (CODE, sized)] {
        append(&mut sections, id, &item)?;
    }
    let mut bytes = module[..8].to_vec();
    for (id, content) in sections {
        bytes.push(id);
        write(&mut bytes, content.len());
        bytes.extend(content);
    }
    Some(bytes)
}

/// Adds an item to a section's list, and the section where there is none.
fn append(sections: &mut Vec<(u8, Vec<u8>)>, id: u8, item: &[u8]) -> Option<()> {
    let rank = |id: u8| ORDER.iter().position(|of| *of == id);
    let at = match sections.iter().position(|(of, _)| *of == id) {
        Some(at) => at,
        None => {
            let later = |of: &u8| rank(*of).is_some_and(|of| Some(of) > rank(id));
            let at = sections.iter().position(|(of, _)| later(of)).unwrap_or(sections.len());
            sections.insert(at, (id, vec![0]));
            at
        }
    };
    let content = &mut sections[at].1;
    let (count, items) = number(content)?;
    let mut longer = Vec::new();
    write(&mut longer, count + 1);
    longer.extend_from_slice(items);
    longer.extend_from_slice(item);
    *content = longer;
    Some(())
}

/// How many types there are, and which are functions that take and give nothing.
fn plain_types(section: &[u8]) -> Option<(usize, Vec<usize>)> {
    let (count, mut rest) = number(section)?;
    let mut plain = Vec::new();
    for index in 0..count {
        let (kind, after) = rest.split_first()?;
        if *kind != FUNC {
            return None;
        }
        let (params, after) = number(after)?;
        // One byte each, as long as there are no references to types.
        let (results, after) = number(after.get(params..)?)?;
        rest = after.get(results..)?;
        if params + results == 0 {
            plain.push(index);
        }
    }
    Some((count, plain))
}

fn functions(section: &[u8]) -> Option<Vec<usize>> {
    let (count, mut rest) = number(section)?;
    let mut types = Vec::new();
    for _ in 0..count {
        let (ty, after) = number(rest)?;
        types.push(ty);
        rest = after;
    }
    Some(types)
}

/// LEB128.
fn number(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let mut value = 0;
    for (index, byte) in bytes.iter().take(5).enumerate() {
        value |= usize::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Some((value, &bytes[index + 1..]));
        }
    }
    None
}

pub fn write(bytes: &mut Vec<u8>, mut value: usize) {
    while value >= 0x80 {
        bytes.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}
