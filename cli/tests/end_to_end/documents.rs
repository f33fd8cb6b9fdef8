//! The commands of the documents run as they are written, and print what the documents show.

mod text;
mod tutorial;
