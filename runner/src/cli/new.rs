//! `leasehold new`: a crate of a job that builds, passes its tests and its cases, and can be pushed. Its files are compiled
//! into this command, so that it works wherever it was installed to.

use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;

use super::run::bad_use;

/// The crate's files, `@NAME@`, `@FUNCTION@` and `@SDK@` to be filled in.
const FILES: [(&str, &str); 7] = [
    ("Cargo.toml", include_str!("../../templates/job/Cargo.toml.txt")),
    ("src/lib.rs", include_str!("../../templates/job/lib.rs.txt")),
    (".cargo/config.toml", include_str!("../../templates/job/config.toml.txt")),
    ("cases/greets.toml", include_str!("../../templates/job/greets.toml.txt")),
    ("cases/nobody.toml", include_str!("../../templates/job/nobody.toml.txt")),
    ("README.md", include_str!("../../templates/job/README.md.txt")),
    (".gitignore", include_str!("../../templates/job/gitignore.txt")),
];

/// The longest name of a module.
const NAME_BYTES: usize = 63;
/// What names a crate or a function cannot have: Rust's own words, and crates that every other one has.
const TAKEN: [&str; 51] = [
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "crate", "do", "dyn", "else",
    "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let", "loop", "macro", "match", "mod",
    "move", "mut", "override", "priv", "pub", "ref", "return", "self", "static", "struct", "super", "trait", "true",
    "try", "type", "typeof", "unsafe", "unsized", "use", "virtual", "where", "while", "yield",
];
const TAKEN_CRATES: [&str; 9] =
    ["alloc", "build", "core", "deps", "examples", "leasehold-guest", "serde", "std", "test"];

/// Make a crate for a job in Rust: builds for wasm, has tests and cases, and can be pushed.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The crate's name, and the module's: small letters, digits, - and _
    name: String,
    /// The folder to make [default: NAME, in this one]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Where leasehold-guest comes from: a folder, a git URL or a version [default: the checkout that DIR lies in, then the one that
    /// this command was built in, then this command's version]
    #[arg(long, value_name = "PATH|URL|VERSION")]
    sdk: Option<String>,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    if let Err(refused) = check_name(&args.name) {
        return Ok(bad_use(&refused));
    }
    let dir = args.dir.unwrap_or_else(|| PathBuf::from(&args.name));
    if dir.read_dir().is_ok_and(|mut entries| entries.next().is_some()) || dir.is_file() {
        return Ok(bad_use(&format!("{} is there already; name another folder with --dir", dir.display())));
    }
    std::fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
    let sdk = match args.sdk {
        Some(wanted) => match named_sdk(&wanted) {
            Ok(sdk) => sdk,
            Err(refused) => return Ok(bad_use(&refused)),
        },
        None => found_sdk(&dir.canonicalize().with_context(|| format!("finding {}", dir.display()))?),
    };
    let function = args.name.replace('-', "_");
    for (name, template) in FILES {
        let path = dir.join(name);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
        }
        let text = template.replace("@NAME@", &args.name).replace("@FUNCTION@", &function).replace("@SDK@", &sdk);
        std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    let wasm = format!("target/wasm32-wasip2/release/{function}.wasm");
    println!("made {}; leasehold-guest = {sdk}\n", dir.display());
    println!("  cd {}", dir.display());
    println!("  cargo test");
    println!("  cargo build --release --target wasm32-wasip2     # once before: rustup target add wasm32-wasip2");
    println!("  leasehold test {wasm}");
    println!("  leasehold module push {} {wasm}", args.name);
    Ok(ExitCode::SUCCESS)
}

fn check_name(name: &str) -> Result<(), String> {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    if name.len() > NAME_BYTES || !name.starts_with(|c: char| c.is_ascii_lowercase()) || !name.chars().all(is_plain) {
        return Err(format!(
            "{name:?} is no name for a crate and a module: 1 to {NAME_BYTES} small letters, digits, - and _, a letter first"
        ));
    }
    if TAKEN.contains(&name) || TAKEN_CRATES.contains(&name) {
        return Err(format!("{name:?} means something else in Rust; call it {name}-job, say"));
    }
    Ok(())
}

/// As a user named it.
fn named_sdk(wanted: &str) -> Result<String, String> {
    if wanted.contains("://") || wanted.starts_with("git@") {
        return Ok(format!("{{ git = {} }}", quoted(wanted)));
    }
    if wanted.starts_with(|c: char| c.is_ascii_digit()) {
        return Ok(quoted(wanted));
    }
    let path = Path::new(wanted);
    let path = if is_sdk(path) { path.to_owned() } else { path.join("guest-sdk") };
    match path.canonicalize() {
        Ok(path) if is_sdk(&path) => Ok(by_path(&path)),
        _ => Err(format!("{wanted} is neither a folder of leasehold-guest, nor a git URL, nor a version like 0.1")),
    }
}

/// What is nearest to the crate.
fn found_sdk(dir: &Path) -> String {
    if let Some((up, checkout)) = dir.ancestors().enumerate().find(|(_, folder)| is_sdk(&folder.join("guest-sdk"))) {
        let to_checkout: PathBuf = std::iter::repeat_n(Component::ParentDir, up).collect();
        // A crate in the SDK itself would be a strange place, and this leads to it all the same.
        debug_assert!(checkout.is_dir());
        return by_path(&to_checkout.join("guest-sdk"));
    }
    let built_in = Path::new(env!("CARGO_MANIFEST_DIR")).join("../guest-sdk");
    match built_in.canonicalize() {
        Ok(path) if is_sdk(&path) => by_path(&path),
        _ => quoted(env!("CARGO_PKG_VERSION")),
    }
}

fn is_sdk(folder: &Path) -> bool {
    std::fs::read_to_string(folder.join("Cargo.toml")).is_ok_and(|text| text.contains("name = \"leasehold-guest\""))
}

fn by_path(path: &Path) -> String {
    format!("{{ path = {} }}", quoted(&path.to_string_lossy()))
}

/// As TOML.
fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_of_a_crate_and_of_a_module() {
        for name in ["hello", "csv-report", "a", "job_2"] {
            assert_eq!(check_name(name), Ok(()), "{name}");
        }
        for name in ["", "Hello", "2nd", "-a", "../up", "a b", "a.b", "match", "test", &"a".repeat(64), "ä"] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }

    #[test]
    fn the_sdk_is_where_one_says() {
        assert_eq!(named_sdk("0.1"), Ok("\"0.1\"".to_owned()));
        assert_eq!(
            named_sdk("https://example.com/leasehold.git"),
            Ok("{ git = \"https://example.com/leasehold.git\" }".to_owned())
        );
        let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let by_checkout = named_sdk(&checkout.to_string_lossy()).expect("it is there");
        assert_eq!(Ok(&by_checkout), named_sdk(&checkout.join("guest-sdk").to_string_lossy()).as_ref());
        assert!(by_checkout.starts_with("{ path = \"/") && by_checkout.ends_with("/guest-sdk\" }"), "{by_checkout}");
        assert!(named_sdk("/nowhere").is_err_and(|refused| refused.contains("nor a version like 0.1")));
    }

    #[test]
    fn inside_a_checkout_the_path_is_relative() {
        let jobs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../jobs").canonicalize().expect("it is there");
        assert_eq!(found_sdk(&jobs.join("hello")), "{ path = \"../../guest-sdk\" }");
        assert!(found_sdk(Path::new("/")).starts_with("{ path = \"/"), "the one that this was built in");
    }
}
