//! Links the library as NVIDIA links that of CUDA 12, from the sources of the CUDA 13 one.

#[path = "../../../link_as.rs"]
mod link_as;

fn main() {
    link_as::link_as("libcublasLt.so.12");
    println!("cargo::rustc-cfg=cuda12");
}
