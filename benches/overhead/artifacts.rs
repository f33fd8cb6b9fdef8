//! The measured artefacts, built by cargo as they are shipped. Cargo reports their paths: the
//! target folder depends on the environment and on cargo's configuration.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, bail, ensure};
use benches::bench::cargo_build;
use serde::Deserialize;
use tempfile::TempDir;

const DRIVER_NAME: &str = "libcuda.so.1";
const NVML_NAME: &str = "libnvidia-ml.so.1";
const PRODUCTS_NAME: &str = "libcublas.so";
const PROFILE: &str = "dist";
/// Path of the release artefact for glibc 2.17 below cargo's target folder, if it was built.
const RELEASE_LIBRARY: &str = "x86_64-unknown-linux-gnu/dist/libpillion.so";

#[derive(Debug)]
pub(crate) struct Artifacts {
    pub(crate) library: PathBuf,
    /// `libpillion.so` for glibc 2.17, if it was built.
    pub(crate) release_library: Option<PathBuf>,
    pub(crate) daemon: PathBuf,
    pub(crate) server: PathBuf,
    /// Only the stand-ins for driver, NVML and cuBLAS, by the names that programs open.
    driver_folder: TempDir,
}

#[derive(Deserialize)]
struct Message {
    reason: String,
    target: Option<Target>,
    #[serde(default)]
    filenames: Vec<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

impl Artifacts {
    pub(crate) fn new(built_in: Option<&Path>) -> anyhow::Result<Self> {
        let built = match built_in {
            None => build()?,
            Some(_) => Vec::new(),
        };
        let at = |file: &str, name: &str, kind: &str| match built_in {
            Some(folder) => std::path::absolute(folder.join(file))
                .ok()
                .filter(|path| path.exists())
                .with_context(|| format!("{} has no {file}", folder.display())),
            None => find(&built, name, kind),
        };
        let library = at("libpillion.so", "pillion", "cdylib")?;
        // <target>/dist/libpillion.so
        let target = library.parent().and_then(Path::parent);
        let release_library = target
            .map(|target| target.join(RELEASE_LIBRARY))
            .filter(|path| path.exists());
        let driver_folder = tempfile::tempdir()?;
        for (opened_as, file, name) in [
            (DRIVER_NAME, "libcuda.so", "cuda"),
            (NVML_NAME, "libnvidia_ml.so", "nvidia_ml"),
            (PRODUCTS_NAME, "libcublas.so", "cublas"),
        ] {
            let built = at(file, name, "cdylib")?;
            symlink(built, driver_folder.path().join(opened_as))?;
        }
        Ok(Self {
            library,
            release_library,
            daemon: at("pilliond", "pilliond", "bin")?,
            server: at("softgpu-server", "softgpu-server", "bin")?,
            driver_folder,
        })
    }

    pub(crate) fn driver_folder(&self) -> &Path {
        self.driver_folder.path()
    }
}

fn build() -> anyhow::Result<Vec<(Target, Vec<PathBuf>)>> {
    let mut command = cargo_build(&[
        "pillion-interpose",
        "pillion-softgpu-driver",
        "pillion-softgpu-nvml",
        "pillion-softgpu-cublas",
        "pillion-softgpu-server",
        "pillion-scheduler",
    ]);
    command
        .args(["--profile", PROFILE])
        .arg("--message-format=json-render-diagnostics")
        .stdout(Stdio::piped());
    let mut cargo = command.spawn().context("starting cargo")?;
    let stdout = cargo.stdout.take().context("cargo's standard output")?;
    let mut built = Vec::new();
    for line in BufReader::new(stdout).lines() {
        let message: Message = serde_json::from_str(&line?).context("a message of cargo")?;
        if message.reason == "compiler-artifact"
            && let Some(target) = message.target
        {
            built.push((target, message.filenames));
        }
    }
    ensure!(
        cargo.wait()?.success(),
        "cargo could not build the artifacts"
    );
    Ok(built)
}

fn find(built: &[(Target, Vec<PathBuf>)], name: &str, kind: &str) -> anyhow::Result<PathBuf> {
    let is_it = |target: &Target| target.name == name && target.kind.iter().any(|k| k == kind);
    let found = built.iter().find(|(target, _)| is_it(target));
    match found.and_then(|(_, files)| files.first()) {
        Some(file) => Ok(file.clone()),
        None => bail!("cargo built no {kind} {name}"),
    }
}
