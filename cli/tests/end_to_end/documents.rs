//! The commands of the documents run as they are written, and print what the documents show.

mod commands;
mod how;
mod text;
mod tutorial;
