//! Macros by which the stand-ins export functions.

/// Defines exported functions, which return a [`crate::Status`].
#[macro_export]
macro_rules! exports {
    ($($name:ident($($arg:ident: $type:ty),* $(,)?) $body:expr;)*) => {
        $(
            #[allow(clippy::too_many_arguments, reason = "the prototype is the library's")]
            // SAFETY: the name is the library's own: nothing else in its process has this name.
            #[unsafe(no_mangle)]
            pub(crate) extern "C" fn $name($($arg: $type),*) -> $crate::Status {
                $crate::enter(move || $body)
            }
        )*
    };
}

/// Functions that exist only so that programs which import them can start. They read no arguments.
#[macro_export]
macro_rules! refuse_each {
    ($($name:ident)*) => { $crate::exports! { $($name() Err($crate::Status::NOT_SUPPORTED);)* } };
}
