//! How lists and values look in a terminal.

use comfy_table::{Table, presets};
use serde::Serialize;

use crate::outcome::clean_text;

/// One JSON value, indented.
pub fn json(value: &impl Serialize) -> anyhow::Result<()> {
    println!("{}", serde_json::to_string_pretty(value)?);
    Ok(())
}

/// A line of text. Guests wrote parts of what is shown, so nothing that a terminal would obey is left in it.
pub fn line(text: &str) {
    println!("{}", clean_text(text.as_bytes()));
}

/// A table without frames, so that `grep` and `awk` can read it too.
pub fn table(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(header.iter().map(|title| title.to_uppercase()));
    for row in rows {
        table.add_row(row);
    }
    line(&table.trim_fmt());
}

/// An absent value.
pub fn or_dash<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "-".into(), |value| value.to_string())
}

/// The first line, cut to a width that leaves room for other columns.
pub fn short(text: &str) -> String {
    const WIDTH: usize = 60;
    let line = text.lines().next().unwrap_or_default();
    if line.chars().count() <= WIDTH && line.len() == text.len() {
        return line.to_owned();
    }
    let cut: String = line.chars().take(WIDTH).collect();
    format!("{cut}...")
}

/// A database's timestamp without the fractions and the zone, which lists do not need.
pub fn time(text: &str) -> String {
    text.get(..19).unwrap_or(text).to_owned()
}
