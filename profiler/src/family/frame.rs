//! The content of a frame: the names of types and functions in its template arguments.

use core::iter::from_fn;

/// The paths (`a::b::C`, or `1a1b1C` where the name is mangled) that follow the function's own name
/// `own` in `name`, in written order: that of the work comes before those of its parts.
pub(super) fn paths<'a>(name: &'a str, own: &'a str) -> impl Iterator<Item = &'a str> {
    // `own` is a part of `name`.
    let end = own.as_ptr().addr() + own.len() - name.as_ptr().addr();
    let mut rest = name.get(end..).unwrap_or("");
    let next = if name.starts_with("_Z") {
        mangled_path
    } else {
        demangled_path
    };
    from_fn(move || {
        let (path, after) = next(rest)?;
        rest = after;
        Some(path)
    })
}

fn demangled_path(text: &str) -> Option<(&str, &str)> {
    let is_of_path = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':');
    let text = text.get(text.find(is_of_path)?..)?;
    let end = text.find(|c| !is_of_path(c)).unwrap_or(text.len());
    text.split_at_checked(end)
}

/// The first path of a mangled text (Itanium C++ ABI: names, each after its length), and the rest.
fn mangled_path(text: &str) -> Option<(&str, &str)> {
    let mut rest = text;
    loop {
        if let Some(after) = after_identifier(rest) {
            let mut end = after;
            while let Some(after) = after_identifier(end) {
                end = after;
            }
            return rest.split_at_checked(rest.len() - end.len());
        }
        rest = after_code(rest)?;
    }
}

/// The rest after an identifier at the start of `text`; nothing if the text was truncated within.
fn after_identifier(text: &str) -> Option<&str> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let length: usize = text.get(..digits)?.parse().ok()?;
    let after = digits.checked_add(length)?;
    Some(text.get(after..).unwrap_or(""))
}

/// The rest after a code that is no identifier: literal (`Li128E`), name (`S1_`), parameter (`T_`).
fn after_code(text: &str) -> Option<&str> {
    let mut characters = text.chars();
    let first = characters.next()?;
    let second = characters.clone().next().unwrap_or(' ');
    let end = match first {
        'L' if second.is_ascii_lowercase() => text.find('E'),
        'S' | 'T' if second == '_' || second.is_ascii_digit() || second.is_ascii_uppercase() => {
            text.find('_')
        }
        _ => return Some(characters.as_str()),
    };
    text.get(end? + 1..)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::paths;
    use crate::base_name::base;

    #[test]
    fn arguments_come_in_the_order_in_which_they_are_written() {
        for (name, expected) in [
            (
                "void cutlass::device_kernel<flash::sm90<flash::Fwd<(int)128, true> > >(int)",
                &["flash::sm90", "flash::Fwd", "int", "128", "true", "int"][..],
            ),
            (
                "_ZN7cutlass13device_kernelIN5flash4sm90INS1_3FwdILi128ELb1EEEEEEEvNT_6ParamsE",
                &["5flash4sm90", "3Fwd", "6Params"],
            ),
            ("_ZN7cutlass6KernelIN4conv4cut", &["4conv4cut"]),
            ("kernel", &[]),
        ] {
            let found: Vec<_> = paths(name, base(name)).collect();
            assert_eq!(found, expected, "{name}");
        }
    }

    proptest! {
        #[test]
        fn any_name_has_an_end(name in "(_Z|N|[0-9]{1,3}|S|T|L|_|E|i|Kernel|<|::|,|ß){0,20}") {
            prop_assert!(paths(&name, base(&name)).count() <= name.len());
        }
    }
}
