//! Entry points that the software GPU does not have: each says so and is counted.

macro_rules! refuse_each {
    ($($name:ident)*) => {
        // Whatever the caller passes stays where C passes it, in registers and on the caller's
        // stack; the function takes nothing of it.
        $(crate::exports::define! { $name() crate::door::refuse() })*
    };
}

abi::for_each_not_softgpu! { refuse_each }
