//! Embeds migrations/ in the binary, so that `leasehold migrate` needs no files beside it.

use std::path::{Path, PathBuf};
use std::{env, fs};

/// Relative to this package. An absolute path would stay in the build's output, and a copy of the checkout together with its
/// target directory would go on embedding the original's migrations.
const MIGRATIONS: &str = "../migrations";

fn main() {
    // Cargo runs this in the package's folder.
    let root = Path::new(MIGRATIONS);
    println!("cargo::rerun-if-changed={MIGRATIONS}");
    let mut text = String::new();
    for (name, folder) in [("NUMBERED", "."), ("FUNCTIONS", "functions"), ("VIEWS", "views")] {
        let mut files: Vec<PathBuf> = fs::read_dir(root.join(folder))
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
            text += &format!("    ({stem:?}, {}),\n", include(&file));
        }
        text += "];\n";
    }
    text += &format!("pub(super) const ROLES: &str = {};\n", include(&root.join("roles.sql")));
    let out = Path::new(&env::var("OUT_DIR").expect("cargo sets it")).join("migrations.rs");
    fs::write(out, text).expect("OUT_DIR is writable");
}

fn include(file: &Path) -> String {
    format!("include_str!(concat!(env!(\"CARGO_MANIFEST_DIR\"), {:?}))", format!("/{}", file.display()))
}
