//! How the stand-ins export functions.

/// Defines exported functions, which answer a [`crate::Status`].
#[macro_export]
macro_rules! exports {
    ($($name:ident($($arg:ident: $type:ty),* $(,)?) $body:expr;)*) => {
        $(
            #[allow(clippy::too_many_arguments, reason = "the prototype is the library's")]
            // SAFETY: nothing else in a process that loads the library has this name; that is what
            // loading it means.
            #[unsafe(no_mangle)]
            pub(crate) extern "C" fn $name($($arg: $type),*) -> $crate::Status {
                $crate::enter(move || $body)
            }
        )*
    };
}

/// Functions that are there so that programs which import them can start. Whatever the caller
/// passes stays where C passes it; the function takes nothing of it.
#[macro_export]
macro_rules! refuse_each {
    ($($name:ident)*) => { $crate::exports! { $($name() Err($crate::Status::NOT_SUPPORTED);)* } };
}
