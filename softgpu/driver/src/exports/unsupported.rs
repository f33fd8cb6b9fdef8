//! Entry points that the software GPU lacks: each refuses the call and is counted.

macro_rules! refuse_each {
    ($($name:ident)*) => {
        // The function reads none of the caller's arguments, which stay where C passes them, in
        // registers and on the caller's stack.
        $(crate::exports::define! { $name() crate::door::refuse() })*
    };
}

abi::for_each_not_softgpu! { refuse_each }
