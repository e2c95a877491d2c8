//! Embeds migrations/ in the binary, so that `leasehold migrate` needs no files beside it.

use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../migrations");
    println!("cargo::rerun-if-changed={}", root.display());
    let mut text = String::new();
    for (name, folder) in [("NUMBERED", "."), ("FUNCTIONS", "functions"), ("VIEWS", "views")] {
        let folder = root.join(folder);
        println!("cargo::rerun-if-changed={}", folder.display());
        let mut files: Vec<PathBuf> = fs::read_dir(&folder)
            .expect("migrations/ lies beside the runner")
            .map(|entry| entry.expect("readable folder").path())
            .filter(|path| path.extension().is_some_and(|end| end == "sql"))
            .filter(|path| {
                name != "NUMBERED" || path.file_stem().is_some_and(|stem| stem.as_encoded_bytes()[0].is_ascii_digit())
            })
            .collect();
        files.sort();
        text += &format!("pub(super) const {name}: &[(&str, &str)] = &[\n");
        for file in files {
            let stem = file.file_stem().expect("has an ending").to_string_lossy();
            text += &format!("    ({stem:?}, include_str!({:?})),\n", file.canonicalize().expect("exists").display());
        }
        text += "];\n";
    }
    let roles = root.join("roles.sql").canonicalize().expect("roles.sql exists");
    text += &format!("pub(super) const ROLES: &str = include_str!({:?});\n", roles.display());
    let out = Path::new(&env::var("OUT_DIR").expect("cargo sets it")).join("migrations.rs");
    fs::write(out, text).expect("OUT_DIR is writable");
}
