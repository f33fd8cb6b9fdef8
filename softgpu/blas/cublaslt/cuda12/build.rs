//! Links the library as NVIDIA's of CUDA 12 is linked, from the sources of the one of CUDA 13.

#[path = "../../../link_as.rs"]
mod link_as;

fn main() {
    link_as::link_as("libcublasLt.so.12");
    println!("cargo::rustc-cfg=cuda12");
}
