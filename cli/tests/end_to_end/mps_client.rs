//! Pillion's own programs never become clients of MPS: initialising CUDA makes a client for life,
//! which keeps other users' clients waiting.

use std::os::unix::net::UnixListener;

use crate::common::{Gpu, clean_command, collect, driver_folder, pillion};

fn connections(listener: &UnixListener) -> usize {
    std::iter::from_fn(|| listener.accept().ok()).count()
}

#[test]
fn who_starts_and_examines_daemons_and_jobs_is_no_client_of_mps() {
    let folder = tempfile::tempdir().unwrap();
    let control = UnixListener::bind(folder.path().join("control")).unwrap();
    control.set_nonblocking(true).unwrap();
    let gpu = Gpu::start("mps");
    let job = gpu.job("job", "work linked 5 0");
    let job = job.env("CUDA_MPS_PIPE_DIRECTORY", folder.path());
    job.env("SOFTGPU_MPS_CLIENT", "1").run().expect_success();
    assert_eq!(connections(&control), 1, "who initialises CUDA is seen");

    let daemon = gpu.daemon_in(&[
        ("CUDA_MPS_PIPE_DIRECTORY", folder.path()),
        ("SOFTGPU_MPS_CLIENT", "1".as_ref()),
    ]);
    let maps = format!("/proc/{}/maps", daemon.pid());
    let maps = std::fs::read_to_string(maps).unwrap();
    assert!(
        maps.contains("pilliond") && !maps.contains("libcuda"),
        "{maps}"
    );
    for arguments in [
        &["run", "--gpu", "0", "--", "true"][..],
        &["doctor"],
        &["status"],
    ] {
        let mut command = clean_command(pillion());
        command
            .args(arguments)
            .env("LD_LIBRARY_PATH", driver_folder())
            .env("SOFTGPU_SOCKET", gpu.socket())
            .env("PILLION_SOCKET", daemon.socket())
            .env("CUDA_MPS_PIPE_DIRECTORY", folder.path())
            .env("SOFTGPU_MPS_CLIENT", "1");
        let ended = collect(command);
        // The doctor may report problems.
        assert!(ended.code() <= 1, "{arguments:?}: {ended:#?}");
    }
    assert_eq!(connections(&control), 0);
}
