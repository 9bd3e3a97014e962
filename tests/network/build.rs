//! Lets the libraries that look `getrandom` up at run time find this package's own: see src/entropy.rs.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-link-arg=-Wl,--export-dynamic-symbol=getrandom");
}
