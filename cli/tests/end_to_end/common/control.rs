//! A stand-in for the program that controls MPS.

use std::fs;
use std::path::PathBuf;

use super::{Daemon, Gpu, cargo_folder, until, write_script};

/// A stand-in for `nvidia-cuda-mps-control` that records commands, and whether the client lives.
pub(crate) struct Control {
    folder: PathBuf,
}

impl Control {
    /// Ends no work, whatever it reports: the device does not know of MPS.
    pub(crate) fn new(gpu: &Gpu) -> Self {
        Self::that(gpu, "")
    }

    /// Has the device end the work of a terminated client.
    pub(crate) fn that_obeys(gpu: &Gpu) -> Self {
        let server = cargo_folder().join("softgpu-server");
        let server = format!("{} --socket {}", server.display(), gpu.socket().display());
        Self::that(gpu, &format!("{server} --inject \"terminate-client $3\";"))
    }

    fn that(gpu: &Gpu, terminate: &str) -> Self {
        let folder = gpu.path("mps");
        fs::create_dir_all(&folder).unwrap();
        let control = Self { folder };
        control.knows(&[]);
        let script = format!(
            "#!/bin/sh\n\
             cd {}\n\
             read -r command\n\
             set -- $command\n\
             case $1 in\n\
             get_server_list) echo 4242 ;;\n\
             get_client_list) while read -r pid; do echo $pid; done <clients ;;\n\
             terminate_client) kill -0 $3 && command=\"$command, alive\"; {terminate} echo CUDA_SUCCESS ;;\n\
             esac\n\
             echo $command >> asked\n",
            control.folder.display()
        );
        write_script(&control.program(), &script);
        control
    }

    pub(crate) fn program(&self) -> PathBuf {
        self.folder.join("nvidia-cuda-mps-control")
    }

    pub(crate) fn search_path(&self) -> String {
        format!("{}:/usr/bin:/bin", self.folder.display())
    }

    /// Makes these clients of its server, beside another one.
    pub(crate) fn knows(&self, pids: &[u32]) {
        let pids: String = pids.iter().map(|pid| format!("{pid}\n")).collect();
        fs::write(self.folder.join("clients"), format!("1\n{pids}")).unwrap();
    }

    /// Whether it was asked to end the work of this process, which was alive then.
    pub(crate) fn has_terminated(&self, pid: u32) -> bool {
        let line = format!("terminate_client 4242 {pid}, alive");
        self.asked().contains(&line)
    }

    /// It was asked to end this process's work before the kill, or the daemon says that a busy
    /// machine prevented it.
    pub(crate) fn expect_terminated(&self, pid: u32, daemon: &Daemon) {
        if self.has_terminated(pid) {
            return;
        }
        let is_late = |line: &str| {
            let is_told = line.contains("MPS did not end the work of");
            is_told
                && [" in time", "the time was used for other processes"]
                    .iter()
                    .any(|late| line.contains(late))
        };
        // Reported once the process is killed.
        until("the reason why MPS did not end its work in time", || {
            daemon.log().lines().any(is_late)
        });
        println!("not shown: there was no time to ask MPS");
    }

    pub(crate) fn asked(&self) -> Vec<String> {
        let asked = fs::read_to_string(self.folder.join("asked")).unwrap_or_default();
        asked.lines().map(str::to_owned).collect()
    }
}
