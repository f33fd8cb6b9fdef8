//! The devices visible to a process: `CUDA_VISIBLE_DEVICES`, as NVIDIA documents it (CUDA C++
//! Programming Guide, "CUDA Environment Variables"): a list of ordinals or of UUIDs, which may be
//! abbreviated as long as they are unambiguous; the devices get new ordinals in the order of the
//! list; the first entry that names no device ends it, here also one that repeats a device.

use protocol::hello::format_uuid;

const PREFIX: &str = "GPU-";

/// Whether an entry of the list is a UUID.
pub(crate) fn names_identities(asked: &str) -> bool {
    asked
        .split(',')
        .any(|entry| entry.trim().starts_with(PREFIX))
}

/// Indices of the visible devices; `uuids` are those of all devices.
pub(crate) fn select(asked: &str, uuids: &[[u8; 16]]) -> Vec<usize> {
    let mut seen = Vec::new();
    for entry in asked.split(',') {
        match place(entry.trim(), uuids) {
            Some(place) if !seen.contains(&place) => seen.push(place),
            _ => break,
        }
    }
    seen
}

fn place(entry: &str, uuids: &[[u8; 16]]) -> Option<usize> {
    if entry.starts_with(PREFIX) {
        let named = |uuid: &&[u8; 16]| format_uuid(**uuid).starts_with(entry);
        let is_unambiguous = uuids.iter().filter(named).count() == 1;
        return uuids
            .iter()
            .position(|uuid| named(&uuid))
            .filter(|_| is_unambiguous);
    }
    let ordinal: usize = entry.parse().ok()?;
    (ordinal < uuids.len()).then_some(ordinal)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uuids() -> Vec<[u8; 16]> {
        let mut near = [0xaa; 16];
        near[1] = 0xbb;
        vec![[0x11; 16], [0xaa; 16], near]
    }

    #[test]
    fn ordinals_choose_and_order() {
        assert_eq!(select("2,0", &uuids()), [2, 0]);
        assert_eq!(select(" 1 , 2", &uuids()), [1, 2]);
    }

    #[test]
    fn the_first_entry_that_names_nothing_ends_the_list() {
        assert_eq!(select("1,7,0", &uuids()), [1]);
        assert_eq!(select("0,-1,1", &uuids()), [0]);
        assert_eq!(select("1,1,0", &uuids()), [1]);
        for none in ["", "-1", "x", "NoDevFiles"] {
            assert_eq!(select(none, &uuids()), [0; 0], "{none:?}");
        }
    }

    #[test]
    fn an_identity_may_be_cut_while_it_is_unambiguous() {
        assert_eq!(select("GPU-1111", &uuids()), [0]);
        assert_eq!(select("GPU-aabb,0", &uuids()), [2, 0]);
        assert_eq!(select("GPU-aa,0", &uuids()), [0; 0]);
        assert_eq!(select("0,GPU-22", &uuids()), [0]);
        assert!(names_identities("0,GPU-22") && !names_identities("0,1"));
    }
}
