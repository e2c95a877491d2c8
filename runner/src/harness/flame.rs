//! A profile as a picture.

use anyhow::Context as _;
use inferno::flamegraph::{Options, from_lines};

use crate::sandbox::Profile;

/// A flame graph as SVG: the wider a function, the more fuel went into it and what it called.
pub fn flame_graph(module: &str, profile: &Profile) -> anyhow::Result<String> {
    let mut options = Options::default();
    options.title = format!("Fuel of {module}");
    options.count_name = "fuel".to_owned();
    let folded = profile.folded();
    let mut svg = Vec::new();
    from_lines(&mut options, folded.lines(), &mut svg).context("drawing the flame graph")?;
    String::from_utf8(svg).context("drawing the flame graph")
}
