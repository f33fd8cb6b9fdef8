//! The files of a daemon's configuration.
//! A GPU has a file of its own, or none. In the same folder `default.toml` has the defaults for all
//! GPUs; a key in the GPU's file overrides them. Both have drop-ins: the files of the folder
//! `default.d`, or of `gpu0.d` for `gpu0.toml`, in the order of their names, each overriding the
//! previous. So a package, an operator and a tool can each own a file.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use profiler::Place;
use profiler::settings::{self, Layers};
use toml::de::{DeTable, DeValue};

use super::gpu::{self, Gpu, Select};
use super::{Config, ConfigError, Fault, parse};

/// The file of defaults for all GPUs of a folder.
pub const DEFAULTS: &str = "default.toml";
/// Configuration folder of root, and of users without their own.
pub const SYSTEM_FOLDER: &str = "/etc/pillion";

/// Source of a daemon's configuration, for reloads, too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A file, with its defaults and drop-ins.
    File(PathBuf),
    /// No file of the GPU's own: only the folder's defaults.
    Defaults {
        /// The folder, which need not exist.
        folder: PathBuf,
        /// The GPU.
        gpu: Select,
    },
}

impl Source {
    /// The file of `folder` that names the GPU which `select` selects among `gpus`, else the
    /// defaults.
    /// # Errors
    /// A file in it is unreadable or not TOML, so that it may be that GPU's, or two files name it.
    pub fn of_gpu(folder: &Path, select: &Select, gpus: &[Gpu]) -> Result<Self, ConfigError> {
        let uuid = |select: &Select| Some(gpu::choose(gpus.to_vec(), select).ok()?.uuid);
        let wanted = uuid(select);
        let mut found: Option<PathBuf> = None;
        for path in files_in(folder)? {
            if is_defaults(&path) {
                continue;
            }
            let own = Layers::one(&path, &read(&path)?);
            let document = own.document().map_err(ConfigError::Invalid)?;
            let Some(named) = named_by(&document).filter(|named| uuid(named) == wanted) else {
                continue;
            };
            if let Some(first) = found {
                let (gpu, second) = (named.to_string(), path);
                return Err(ConfigError::Twice { gpu, first, second });
            }
            found = Some(path);
        }
        Ok(found.map_or_else(
            || Self::Defaults {
                folder: folder.to_owned(),
                gpu: select.clone(),
            },
            Self::File,
        ))
    }

    /// Loads the configuration.
    /// # Errors
    /// A file cannot be read, or has a fault.
    pub fn load(&self) -> Result<Config, ConfigError> {
        Ok(self.read()?.0)
    }

    /// Loads the configuration, and the files behind it.
    /// # Errors
    /// As [`Source::load`].
    pub fn read(&self) -> Result<(Config, Layers), ConfigError> {
        let mut layers = Layers::default();
        let (folder, own, given) = match self {
            Self::File(path) => (path.parent(), Some(path), None),
            Self::Defaults { folder, gpu } => (Some(folder.as_path()), None, Some(gpu)),
        };
        let defaults = folder.map(|folder| folder.join(DEFAULTS));
        if let Some(path) = defaults.filter(|_| !own.is_some_and(|own| is_defaults(own))) {
            // The file is optional; its drop-ins may exist all the same.
            match read(&path) {
                Err(ConfigError::Unreadable { source, .. })
                    if matches!(
                        source.kind(),
                        ErrorKind::NotFound | ErrorKind::NotADirectory
                    ) => {}
                text => layers.push(&path, &text?),
            }
            push_drop_ins(&mut layers, &path)?;
        }
        let own_start = layers.end();
        if let Some(path) = own {
            layers.push(path, &read(path)?);
            push_drop_ins(&mut layers, path)?;
        }
        let is_for_all = own.is_none_or(|own| is_defaults(own));
        // Defaults for all GPUs are checked as if they were one GPU's.
        let any = Select::Index(0);
        let given = given.or(is_for_all.then_some(&any));
        let named = parse::Named { given, own_start };
        let config = parse::parse(&layers, &named).map_err(ConfigError::Invalid)?;
        Ok((config, layers))
    }

    /// The source's path for messages.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        match self {
            Self::File(path) => path.clone(),
            Self::Defaults { folder, .. } => folder.join(DEFAULTS),
        }
    }
}

/// Whether a file has the defaults for all GPUs of its folder.
#[must_use]
pub fn is_defaults(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == DEFAULTS)
}

/// The folder of this user's configurations: root's is `/etc/pillion`, another's
/// `$XDG_CONFIG_HOME/pillion` (`~/.config/pillion`) if it exists, else `/etc/pillion`, too.
/// `PILLION_CONFIG_FOLDER` overrides it.
#[must_use]
pub fn usual_folder() -> PathBuf {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(folder) = set("PILLION_CONFIG_FOLDER") {
        return folder.into();
    }
    let of_user = || {
        let home = set("HOME").map(|home| Path::new(&home).join(".config"));
        let folder = set("XDG_CONFIG_HOME").map(PathBuf::from).or(home)?;
        Some(folder.join("pillion")).filter(|folder| folder.is_dir())
    };
    let is_root = rustix::process::geteuid().is_root();
    let of_user = (!is_root).then(of_user).flatten();
    of_user.unwrap_or_else(|| SYSTEM_FOLDER.into())
}

/// The configuration files of a folder, in the order of their names; none if it does not exist.
/// # Errors
/// The folder cannot be read.
pub fn files_in(folder: &Path) -> Result<Vec<PathBuf>, ConfigError> {
    let unreadable = |source| ConfigError::Unreadable {
        path: folder.to_owned(),
        source,
    };
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(unreadable(error)),
    };
    let paths: Result<Vec<PathBuf>, _> = entries
        .map(|entry| Ok(entry.map_err(unreadable)?.path()))
        .collect();
    let mut paths = paths?;
    paths.retain(|path| path.extension().is_some_and(|it| it == "toml"));
    paths.sort();
    Ok(paths)
}

fn push_drop_ins(layers: &mut Layers, path: &Path) -> Result<(), ConfigError> {
    // A file passed by a shell (`/dev/fd/3`) has no folder of drop-ins.
    if path.extension().is_none_or(|it| it != "toml") {
        return Ok(());
    }
    for path in files_in(&path.with_extension("d"))? {
        layers.push(&path, &read(&path)?);
    }
    Ok(())
}

fn read(path: &Path) -> Result<String, ConfigError> {
    let bytes = std::fs::read(path).map_err(|source| ConfigError::Unreadable {
        path: path.into(),
        source,
    })?;
    String::from_utf8(bytes).map_err(|error| {
        let valid_bytes = error.utf8_error().valid_up_to();
        let bad = error.as_bytes()[valid_bytes];
        let text = String::from_utf8_lossy(&error.as_bytes()[..valid_bytes]).into_owned();
        ConfigError::Invalid(vec![Fault {
            place: Place::of_offset(path, &text, valid_bytes),
            what: format!("byte 0x{bad:02x} is not UTF-8 text"),
        }])
    })
}

fn named_by(document: &DeTable<'_>) -> Option<Select> {
    let value = |key: &str| settings::at(document, &format!("gpu.{key}"));
    let text = |key: &str| Some(value(key)?.get_ref().as_str()?.to_owned());
    let index = value("index").and_then(|index| match index.get_ref() {
        DeValue::Integer(index) => index.as_str().parse().ok().map(Select::Index),
        _ => None,
    });
    let pci = || text("pci")?.parse().ok().map(Select::Pci);
    index
        .or_else(|| text("uuid").map(Select::Uuid))
        .or_else(pci)
}
