//! The function's own name in a kernel's: no namespaces, template arguments, parameters. Spellings
//! share it: NVIDIA's tools print `<unnamed>::f<(bool)0>(int)`, PyTorch's profiler `(anonymous
//! namespace)::f<false>(int)`, and the driver knows `_ZN12_GLOBAL__N_11fILb0EEEvi`.

/// The function's own name in `name`: demangled by any tool, mangled (Itanium C++ ABI) or plain.
#[must_use]
pub fn base(name: &str) -> &str {
    if let Some(base) = name.strip_prefix("_Z").and_then(mangled_base) {
        return base;
    }
    demangled_base(name).unwrap_or(name)
}

/// The last part of a mangled (nested) name, after `_Z`. Template arguments follow it (`I…E`): the
/// scan stops at the first thing that is no length, or returns the rest of a truncated part.
fn mangled_base(rest: &str) -> Option<&str> {
    let mut rest = rest.strip_prefix('N').unwrap_or(rest);
    // cv- and ref-qualifiers, and the mark of internal linkage.
    rest = rest.trim_start_matches(['r', 'V', 'K', 'L']);
    let mut last = None;
    loop {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let Some(length) = rest.get(..digits).and_then(|digits| digits.parse().ok()) else {
            return last;
        };
        let length: usize = length;
        let end = digits.checked_add(length)?;
        let Some(part) = rest.get(digits..end) else {
            let left = rest.get(digits..).filter(|left| !left.is_empty());
            return last.and(left.or(last));
        };
        last = Some(part);
        rest = rest.get(end..)?;
        rest = rest.strip_prefix('L').unwrap_or(rest);
    }
}

/// The own name in a demangled one: the last part before the parameters, outside all brackets.
fn demangled_base(name: &str) -> Option<&str> {
    let mut start = 0;
    let mut end = 0;
    let mut at = 0;
    while let Some(character) = name.get(at..).and_then(|rest| rest.chars().next()) {
        let length = character.len_utf8();
        let word = name.get(start..at).unwrap_or("");
        match character {
            _ if word == "operator" => return operator(name, start),
            ' ' | '*' | '&' => start = at + 1,
            ':' if name.get(at..).is_some_and(|rest| rest.starts_with("::")) => {
                at += 2;
                start = at;
                end = at;
                continue;
            }
            '(' if end > start => return name.get(start..end),
            '<' | '(' | '[' | '{' => {
                // Template arguments, `<unnamed>`, `{lambda()#1}`; a truncated name ends here.
                let Some(after) = skip_brackets(name, at) else {
                    break;
                };
                at = after;
                continue;
            }
            _ => end = at + length,
        }
        at += length;
    }
    name.get(start..end).filter(|base| !base.is_empty())
}

/// `operator()`, `operator<<`: up to the parameters.
fn operator(name: &str, start: usize) -> Option<&str> {
    let rest = name.get(start + "operator".len()..)?;
    let symbol = if rest.trim_start().starts_with("()") {
        rest.find(')').map(|at| at + 1)
    } else {
        rest.find('(')
    };
    let end = start + "operator".len() + symbol.unwrap_or(rest.len());
    name.get(start..end)
}

fn skip_brackets(name: &str, open: usize) -> Option<usize> {
    let mut depth = 0usize;
    let mut before = ' ';
    for (at, character) in name.get(open..)?.char_indices() {
        match character {
            '<' | '(' | '[' | '{' => depth += 1,
            // The arrow of a trailing return type closes nothing.
            '>' if before == '-' => {}
            '>' | ')' | ']' | '}' => {
                depth -= 1;
                if depth == 0 {
                    return Some(open + at + character.len_utf8());
                }
            }
            _ => {}
        }
        before = character;
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::base;

    #[test]
    fn the_base_name_is_the_function_alone() {
        for (name, expected) in [
            ("saxpy", "saxpy"),
            ("saxpy(int, float, float *, float *)", "saxpy"),
            (
                "matmul_kernel(const float *, float *, int)",
                "matmul_kernel",
            ),
            (
                "void at::native::<unnamed>::distribution_kernel<float, (int)4, T1::[lambda() (instance 1)]>(int, T3)",
                "distribution_kernel",
            ),
            (
                "void at::native::(anonymous namespace)::distribution_kernel<float, 4, T::{lambda()#1}::operator()() const>(int)",
                "distribution_kernel",
            ),
            (
                "cask_cudnn::computeOffsetsKernel(cask_cudnn::ComputeOffsetsParams)",
                "computeOffsetsKernel",
            ),
            ("void cub::f<T4>(T4, std::function<int (int)>)", "f"),
            ("nvfuser_none_f0_c0_r0_g0", "nvfuser_none_f0_c0_r0_g0"),
            ("ampere_sgemm_128x64_tn", "ampere_sgemm_128x64_tn"),
            (
                "std::enable_if<!T7, void>::type internal::gemvx::kernel<int, int>(T13)",
                "kernel",
            ),
            (
                "void (anonymous namespace)::softmax<float>(float*)",
                "softmax",
            ),
            ("<unnamed>::f(int)", "f"),
            ("auto f<int>(int) -> decltype(g<int>())", "f"),
            ("void thing::operator()<int>(int) const", "operator()"),
            ("_Z5saxpyifPfS_", "saxpy"),
            ("_ZN2at6native12_GLOBAL__N_14copyIfEEvPT_", "copy"),
            (
                "_ZN8cublasLt19splitKreduce_kernelILi32EEEvv",
                "splitKreduce_kernel",
            ),
            ("_Z99x", "_Z99x"),
            ("_Z", "_Z"),
            ("f<", "f"),
            (
                "void at::native::reduce_kernel<512, at::native::ReduceOp<float, softmax",
                "reduce_kernel",
            ),
            ("void (anonymous namesp", "void (anonymous namesp"),
            (
                "_ZN2at6native29vectorized_elementwise_ker",
                "vectorized_elementwise_ker",
            ),
            (
                "_ZN2at6native13reduce_kernelILi512ELi1ENS0_8Red",
                "reduce_kernel",
            ),
            ("", ""),
        ] {
            assert_eq!(base(name), expected, "{name}");
        }
    }

    proptest! {
        #[test]
        fn any_name_has_a_base_that_is_part_of_it(name in any::<String>()) {
            prop_assert!(name.contains(base(&name)));
        }

        #[test]
        fn brackets_in_any_order_are_no_trouble(name in "[a-z:<>(){}\\[\\] ,*&_Z0-9-]{0,40}") {
            prop_assert!(name.contains(base(&name)));
        }
    }
}
