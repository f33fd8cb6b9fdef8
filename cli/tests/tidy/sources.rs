//! Files of the workspace by their paths from its root.

use std::fs;
use std::path::Path;

fn workspace() -> &'static Path {
    let parent = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    parent.expect("the crate lies in the workspace")
}

/// Every file with one of these endings, as path and text.
pub(crate) fn files(endings: &[&str]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![workspace().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder of the workspace") {
            let path = entry.expect("a folder of the workspace").path();
            let name = path
                .file_name()
                .expect("an entry has a name")
                .to_string_lossy()
                .into_owned();
            let is_hidden = name.starts_with('.') && name != ".ci";
            let is_ours = !is_hidden && !name.starts_with("target");
            if path.is_dir() && is_ours {
                folders.push(path);
            } else if path.is_file() && endings.iter().any(|end| format!("/{name}").ends_with(end))
            {
                found.push((
                    from_root(&path),
                    fs::read_to_string(&path).expect("sources are UTF-8"),
                ));
            }
        }
    }
    found.sort();
    found
}

fn from_root(path: &Path) -> String {
    let path = path.strip_prefix(workspace()).expect("found below it");
    path.to_str().expect("our paths are text").to_owned()
}

/// Every Rust source.
pub(crate) fn sources() -> Vec<(String, String)> {
    let found = files(&[".rs"]);
    assert!(found.len() > 50, "only {} sources found", found.len());
    found
}
