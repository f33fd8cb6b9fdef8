//! Compares the parameters of every hook with the prototype of its symbol. 21 families of entry
//! points change their parameters between versions; a hook with those of another version would pass
//! wrong arguments to the driver. The test compares the types as written in the hook, through
//! [`Signature`], which [`super::hook!`] implements. A pointer to data that no hook reads may be
//! written as a pointer to `c_void`. Constness is not compared: it changes no call.

use abi::{ENTRY_POINTS, Route};

pub(crate) trait Signature {
    const PARAMETERS: &'static [&'static str];
}

macro_rules! table_of_signatures {
    ($($name:ident)*) => {
        const SIGNATURES: &[(usize, &[&str])] =
            &[$((abi::id::$name, <super::all::$name as Signature>::PARAMETERS)),*];
    };
}

abi::for_each_hooked! { table_of_signatures }

/// Equal types: our name, and C's in the headers.
const SAME: &[(&str, &str)] = &[
    ("usize", "size_t"),
    ("c_int", "int"),
    ("c_uint", "unsigned int"),
    ("c_uchar", "unsigned char"),
    ("c_ushort", "unsigned short"),
    ("c_char", "char"),
    ("c_longlong", "long long"),
    ("c_ulonglong", "unsigned long long"),
    ("c_void", "void"),
    ("f32", "float"),
    ("u32", "cuuint32_t"),
    ("u32", "unsigned int"),
    ("u64", "cuuint64_t"),
    ("u64", "unsigned long long"),
    // A stream's attributes are a launch's.
    ("CUlaunchAttributeID", "CUstreamAttrID"),
    ("CUlaunchAttributeValue", "CUstreamAttrValue"),
    // 32 bits wide, as the headers define it for entry points from before CUDA 3.2.
    ("c_uint", "CUdeviceptr_v1"),
    ("u32", "CUdeviceptr_v1"),
];

/// A type in one notation for both languages: the pointee's name, and the number of pointers.
#[derive(Debug, PartialEq, Eq)]
struct Written {
    name: String,
    pointers: usize,
}

fn of_rust(text: &str) -> Written {
    let words: Vec<&str> = text
        .split(|c: char| c.is_whitespace() || c == '*')
        .filter(|word| !matches!(*word, "" | "mut" | "const"))
        .collect();
    let name = words.join(" ");
    Written {
        name: name.rsplit("::").next().unwrap_or(&name).to_owned(),
        pointers: text.matches('*').count(),
    }
}

fn of_c(text: &str) -> Written {
    let (before_array, array) = match text.split_once('[') {
        Some((before, _)) => (before, 1),
        None => (text, 0),
    };
    let words: Vec<&str> = before_array
        .split(|c: char| c.is_whitespace() || c == '*')
        .filter(|word| !matches!(*word, "" | "const" | "struct" | "enum"))
        .collect();
    // The last word is the parameter's name, if there is one beside the type.
    let is_type_alone = words.len() == 1 || text.trim_end().ends_with('*');
    let named = if is_type_alone {
        words.len()
    } else {
        words.len() - 1
    };
    Written {
        name: words[..named].join(" "),
        pointers: text.matches('*').count() + array,
    }
}

fn agrees(ours: &Written, theirs: &Written) -> bool {
    if ours.pointers != theirs.pointers {
        // An opaque pointer stands for a function, or for a pointer to anything.
        let is_function = ["Callback", "Fn", "Free"]
            .iter()
            .any(|end| theirs.name.ends_with(end));
        let is_pointer = theirs.pointers > 1 || (theirs.pointers == 0 && is_function);
        return ours.name == "c_void" && ours.pointers == 1 && is_pointer;
    }
    ours.name == theirs.name
        || (ours.pointers > 0 && ours.name == "c_void")
        || SAME.contains(&(&*ours.name, &*theirs.name))
}

fn parameters(prototype: &str) -> Vec<&str> {
    match prototype.trim() {
        "void" | "" => Vec::new(),
        list => list.split(',').map(str::trim).collect(),
    }
}

#[test]
fn every_hook_has_the_parameters_of_its_symbol() {
    let mut wrong = Vec::new();
    for (index, ours) in SIGNATURES {
        let entry_point = &ENTRY_POINTS[*index];
        let theirs = parameters(entry_point.prototype);
        let is_right = ours.len() == theirs.len()
            && ours
                .iter()
                .zip(&theirs)
                .all(|(ours, theirs)| agrees(&of_rust(ours), &of_c(theirs)));
        if !is_right {
            wrong.push(format!(
                "{}: hook takes ({}), the driver ({})",
                entry_point.symbol.to_string_lossy(),
                ours.join(", "),
                entry_point.prototype
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let hooked = ENTRY_POINTS.iter().filter(|e| e.route == Route::Hook);
    assert_eq!(SIGNATURES.len(), hooked.count());
}

#[test]
fn what_does_not_agree_is_seen() {
    for (ours, theirs, agree) in [
        ("c_uint", "unsigned int Flags", true),
        ("c_int", "unsigned int Flags", false),
        ("usize", "unsigned int bytesize", false),
        ("*mut CUdeviceptr", "CUdeviceptr *dptr", true),
        ("CUdeviceptr", "CUdeviceptr *dptr", false),
        ("*mut c_void", "CUdeviceptr *dptr", true),
        (
            "*const CUlaunchConfig",
            "const CUlaunchConfig *config",
            true,
        ),
        ("*mut *mut c_void", "void **kernelParams", true),
        ("*mut c_void", "void **kernelParams", true),
        ("*mut *mut c_void", "void *kernelParams", false),
        ("CUstream", "CUstream hStream", true),
        ("CUevent", "CUstream hStream", false),
        ("*mut c_void", "CUstream hStream", false),
        ("*mut c_void", "CUstreamCallback callback", true),
        ("*const CUuuid", "const unsigned char uuid[16]", false),
    ] {
        let answer = agrees(&of_rust(ours), &of_c(theirs));
        assert_eq!(answer, agree, "{ours} for {theirs}");
    }
}
