//! Finds the Kubernetes pod of a process by its cgroup. The kubelet names a pod's cgroup by its
//! uid, below a cgroup with `kubepods` in its name: under cgroupfs
//! `/kubepods/burstable/pod<uid>/<container>`, under systemd
//! `/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<uid>.slice/<container>.scope`,
//! with `_` for the dashes of the uid. Nested kubelets (kind) add a prefix. Both versions of
//! cgroups have the same names.

/// Length of a pod's uid with dashes, and of a static pod's (a digest) without.
const UID_LENGTHS: [usize; 2] = [36, 32];

/// The uid of the pod in `/proc/PID/cgroup` (`cgroups(7)`), if any.
pub(super) fn uid_in(cgroup: &str) -> Option<String> {
    // Hierarchy, controllers and path; the path may contain colons.
    let paths = cgroup.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    let mut of_pods = paths.filter(|path| path.contains("kubepods"));
    of_pods.find_map(|path| path.split('/').find_map(uid_of))
}

fn uid_of(name: &str) -> Option<String> {
    let name = name.strip_suffix(".slice").unwrap_or(name);
    let uid = match name.rsplit_once("-pod") {
        Some((before, uid)) if before.contains("kubepods") => uid,
        _ => name.strip_prefix("pod")?,
    };
    let uid = uid.replace('_', "-");
    let is_uid = |c: char| c.is_ascii_hexdigit() || c == '-';
    (UID_LENGTHS.contains(&uid.len()) && uid.chars().all(is_uid)).then_some(uid)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const UID: &str = "0f7c6a1e-2b3d-4c5e-8f90-a1b2c3d4e5f6";
    const CONTAINER: &str = "9d1b6f0d3c6c4b0e8a43e6a8b8f0a6f2b6c1b0a3d5e7f9018273645546372819";

    #[test]
    fn both_drivers_and_both_versions_name_the_pod() {
        let slice = format!("pod{}", UID.replace('-', "_"));
        for text in [
            // Version 2, systemd; containerd and CRI-O.
            format!(
                "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-{slice}.slice/cri-containerd-{CONTAINER}.scope\n"
            ),
            format!("0::/kubepods.slice/kubepods-{slice}.slice/crio-{CONTAINER}.scope/container\n"),
            // Version 2, cgroupfs; seen from another cgroup namespace.
            format!("0::/kubepods/besteffort/pod{UID}/{CONTAINER}\n"),
            format!("0::/../../kubepods/pod{UID}/{CONTAINER}\n"),
            // Version 1: a line for each hierarchy.
            format!(
                "12:devices:/kubepods/burstable/pod{UID}/{CONTAINER}\n11:cpu,cpuacct:/kubepods/burstable/pod{UID}/{CONTAINER}\n"
            ),
            // A kubelet in a container.
            format!(
                "0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/kubelet-kubepods-besteffort-{slice}.slice/\
                 cri-containerd-{CONTAINER}.scope\n"
            ),
        ] {
            assert_eq!(uid_in(&text).as_deref(), Some(UID), "{text}");
        }
    }

    #[test]
    fn a_static_pod_is_named_by_its_digest() {
        let digest = "f46bf2e8b0bc0b0f3a1cbdd1d0f7cf29";
        let text = format!("0::/kubepods/burstable/pod{digest}/{CONTAINER}\n");
        assert_eq!(uid_in(&text).as_deref(), Some(digest));
    }

    #[test]
    fn what_is_in_no_pod_has_no_uid() {
        for text in [
            "",
            "0::/\n",
            "0::/user.slice/user-1000.slice/session-2.scope\n",
            "0::/system.slice/docker-9d1b6f0d.scope\n",
            "0::/kubepods.slice/kubelet.service\n",
            "0::/kubepods/podtooshort/x\n",
            // A user's own cgroup with a similar name.
            "0::/user.slice/pod0f7c6a1e-2b3d-4c5e-8f90-a1b2c3d4e5f6\n",
            "no colons at all",
        ] {
            assert_eq!(uid_in(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn whatever_stands_there_a_uid_is_short_and_plain(text in ".{0,200}") {
            for text in [text.clone(), format!("0::/kubepods/pod{text}/x")] {
                if let Some(uid) = uid_in(&text) {
                    prop_assert!(UID_LENGTHS.contains(&uid.len()), "{}", uid);
                }
            }
        }
    }
}
