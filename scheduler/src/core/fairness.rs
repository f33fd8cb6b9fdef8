//! Which entry of a full table makes room for a new one.

/// The place to give up in a full list: the oldest entry of the user with most entries, so that no
/// user can displace those of others. `uids` are in the list's order, oldest first.
pub(crate) fn place_to_give_up(uids: impl Iterator<Item = u32> + Clone) -> Option<usize> {
    let count = |uid| uids.clone().filter(|other| *other == uid).count();
    let places = uids.clone().enumerate();
    // `max_by_key` returns the last of equals, so iterate from the youngest to the oldest.
    let mut places: Vec<(usize, u32)> = places.collect();
    places.reverse();
    let most = places.into_iter().max_by_key(|(_, uid)| count(*uid));
    most.map(|(place, _)| place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_full_list_the_oldest_of_who_has_most_goes() {
        let place = |uids: &[u32]| place_to_give_up(uids.iter().copied());
        assert_eq!(place(&[1, 2, 2, 3]), Some(1));
        assert_eq!(place(&[1, 2, 3]), Some(0));
        assert_eq!(place(&[3, 1, 1, 3]), Some(0));
        assert_eq!(place(&[]), None);
    }
}
