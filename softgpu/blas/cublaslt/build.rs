//! Links the library as NVIDIA's of CUDA 13 is linked.

#[path = "../../link_as.rs"]
mod link_as;

fn main() {
    link_as::link_as("libcublasLt.so.13");
}
