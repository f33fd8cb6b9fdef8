//! The attribute `#[test]` of targets whose harness is the crate `testing`.

use proc_macro::TokenStream;

/// Leaves a function `fn name()` as it is and adds it to the tests of its target.
#[proc_macro_attribute]
pub fn test(_: TokenStream, function: TokenStream) -> TokenStream {
    let words = function.clone().into_iter().map(|token| token.to_string());
    let name = words.skip_while(|word| word != "fn").nth(1);
    let registration = match name {
        Some(name) => format!("::testing::register!({name});"),
        None => "::core::compile_error!(\"a test is a function\");".to_owned(),
    };
    let registration: TokenStream = registration.parse().expect("it is one macro call");
    function.into_iter().chain(registration).collect()
}
