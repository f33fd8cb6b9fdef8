//! Links the library as NVIDIA links that of CUDA 13.

#[path = "../link_as.rs"]
mod link_as;

fn main() {
    link_as::link_as("libcudart.so.13");
}
