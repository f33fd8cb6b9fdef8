//! Which entry of a full table gives way to a new one.

/// The place in a full list that is to be given up for another: the oldest of the user who has most
/// of it, so that nobody can push out what others have there. `uids` are in the list's order, the
/// oldest first.
pub(crate) fn place_to_give_up(uids: impl Iterator<Item = u32> + Clone) -> Option<usize> {
    let count = |uid| uids.clone().filter(|other| *other == uid).count();
    let places = uids.clone().enumerate();
    // Of equals the last wins in `max_by_key`, so from the youngest to the oldest.
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
