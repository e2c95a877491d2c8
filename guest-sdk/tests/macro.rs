//! What `#[job]` refuses, and in which words. `TRYBUILD=overwrite` writes the files beside the programs anew.

#[test]
fn a_wrong_signature_is_refused_where_it_is_wrong() {
    trybuild::TestCases::new().compile_fail("tests/refused/*.rs");
}
