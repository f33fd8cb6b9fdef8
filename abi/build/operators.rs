//! Generates the table and the macro of `src/operator.rs` from `operators.csv`. A line has a call
//! of cuBLAS, cuBLASLt or cuDNN, its operator, and the parameters that state the amount of work
//! (`stated`, ordered by `form`; a word that is not a parameter is taken literally). The prototypes
//! are the public headers'. A mistake in it fails the build with its file and line.

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};

use crate::table::fields;

const HEADER: &str = "symbol,library,operator,form,stated,prototype";

/// Values of the column `library`, the variant of `Library`, and the prefix of its symbols.
const LIBRARIES: [(&str, &str, &str); 3] = [
    ("cublas", "Cublas", "cublas"),
    ("cublasLt", "CublasLt", "cublasLt"),
    ("cudnn", "Cudnn", "cudnn"),
];

/// Values of the column `form`, and how many parameters it states.
const FORMS: [(&str, usize); 5] = [
    ("product", 7),
    ("light_product", 4),
    ("tensor_and_filter", 2),
    ("tensor", 1),
    ("name_alone", 0),
];

const INTS: [&str; 14] = [
    "int",
    "cublasOperation_t",
    "cudaDataType",
    "cublasComputeType_t",
    "cublasGemmAlgo_t",
    "cudnnConvolutionFwdAlgo_t",
    "cudnnConvolutionBwdDataAlgo_t",
    "cudnnConvolutionBwdFilterAlgo_t",
    "cudnnBatchNormMode_t",
    "cudnnBatchNormOps_t",
    "cudnnSoftmaxAlgorithm_t",
    "cudnnSoftmaxMode_t",
    "cudnnForwardMode_t",
    "cudnnWgradMode_t",
];

const ADDRESSES: [&str; 14] = [
    "cublasHandle_t",
    "cublasLtHandle_t",
    "cublasLtMatmulDesc_t",
    "cublasLtMatrixLayout_t",
    "cudaStream_t",
    "cudnnHandle_t",
    "cudnnTensorDescriptor_t",
    "cudnnFilterDescriptor_t",
    "cudnnConvolutionDescriptor_t",
    "cudnnActivationDescriptor_t",
    "cudnnPoolingDescriptor_t",
    "cudnnRNNDescriptor_t",
    "cudnnRNNDataDescriptor_t",
    "cudnnBackendDescriptor_t",
];

#[derive(Debug)]
pub(crate) struct Row {
    symbol: String,
    library: &'static str,
    operator: String,
    form: &'static str,
    stated: Vec<String>,
    parameters: Vec<(String, &'static str)>,
    prototype: String,
}

/// The rows of `text` sorted by symbol, or all its mistakes, each as `file:line: what is wrong`.
pub(crate) fn parse(file: &str, text: &str) -> Result<Vec<Row>, Vec<String>> {
    let mut lines = (1..).zip(text.lines());
    let mut errors = Vec::new();
    if lines.next().map(|(_, header)| header) != Some(HEADER) {
        errors.push(format!("{file}:1: the header must read `{HEADER}`"));
    }
    let mut rows: Vec<Row> = Vec::new();
    for (line, content) in lines {
        match row(content) {
            Ok(row) if rows.iter().any(|other| other.symbol == row.symbol) => {
                errors.push(format!("{file}:{line}: duplicate symbol `{}`", row.symbol));
            }
            Ok(row) => rows.push(row),
            Err(error) => errors.push(format!("{file}:{line}: {error}")),
        }
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    rows.sort_by(|a, b| a.symbol.as_bytes().cmp(b.symbol.as_bytes()));
    Ok(rows)
}

fn row(content: &str) -> Result<Row, String> {
    let fields = fields(content)?;
    let count = fields.len();
    let [symbol, library, operator, form, stated, prototype] =
        <[String; 6]>::try_from(fields).map_err(|_| format!("{count} fields instead of 6"))?;
    let known = LIBRARIES.iter().find(|(word, ..)| *word == library);
    let (_, library, prefix) = *known.ok_or_else(|| format!("unknown library `{library}`"))?;
    let is_name = |name: &str| name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if !symbol.starts_with(prefix) || !is_name(&symbol) {
        return Err(format!("`{symbol}` is not a symbol of {prefix}"));
    }
    if operator.is_empty() || !is_name(&operator) {
        return Err(format!("`{operator}` is not an operator name"));
    }
    let parameters: Vec<_> = prototype
        .split(',')
        .map(parameter)
        .collect::<Result<_, _>>()?;
    let known = FORMS.iter().find(|(word, _)| *word == form);
    let (form, wanted) = *known.ok_or_else(|| format!("unknown form `{form}`"))?;
    let stated: Vec<String> = stated
        .split_whitespace()
        .map(|word| expression(word, &parameters))
        .collect();
    if stated.len() != wanted {
        return Err(format!(
            "{form} needs {wanted} parameters, found {}",
            stated.len()
        ));
    }
    Ok(Row {
        symbol,
        library,
        operator,
        form,
        stated,
        parameters,
        prototype,
    })
}

/// A stated word: a parameter, a number, or a word for the matrices' element type.
fn expression(word: &str, parameters: &[(String, &'static str)]) -> String {
    let name = snake(word);
    let is_number = word.bytes().all(|b| b.is_ascii_digit());
    if is_number || parameters.iter().any(|(other, _)| *other == name) {
        name
    } else {
        format!("{word:?}")
    }
}

fn parameter(text: &str) -> Result<(String, &'static str), String> {
    let text = text.trim();
    let is_pointer = text.contains(['*', '[']);
    let words: Vec<&str> = text
        .split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .filter(|word| !word.is_empty() && *word != "const")
        .collect();
    let (name, kind) = words
        .split_last()
        .filter(|(_, kind)| !kind.is_empty())
        .ok_or_else(|| format!("`{text}` is not a parameter"))?;
    let kind = kind.join(" ");
    let kind = match kind.as_str() {
        _ if is_pointer => "*mut core::ffi::c_void",
        kind if ADDRESSES.contains(&kind) => "*mut core::ffi::c_void",
        kind if INTS.contains(&kind) => "core::ffi::c_int",
        "size_t" => "usize",
        "long long int" => "core::ffi::c_longlong",
        "double" => "core::ffi::c_double",
        other => return Err(format!("unknown parameter type `{other}`")),
    };
    Ok((snake(name), kind))
}

fn snake(name: &str) -> String {
    let mut snake = String::new();
    let mut was_lower = false;
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && was_lower {
            snake.push('_');
        }
        was_lower = letter.is_ascii_lowercase() || letter.is_ascii_digit();
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}

pub(crate) fn generated(rows: &[Row]) -> Result<String, fmt::Error> {
    let mut code = String::from("// Generated from operators.csv by build/operators.rs.\n\n");
    let names: BTreeSet<&str> = rows.iter().map(|row| row.operator.as_str()).collect();
    let names: Vec<&str> = names.into_iter().collect();
    writeln!(code, "/// The names of operators, sorted.")?;
    writeln!(
        code,
        "pub static OPERATOR_NAMES: [&str; {}] = {names:?};\n",
        names.len()
    )?;
    writeln!(code, "/// How many calls the table has.")?;
    writeln!(code, "pub const OPERATOR_COUNT: usize = {};\n", rows.len())?;
    writeln!(
        code,
        "/// Every call that is an operator, sorted by symbol (bytewise)."
    )?;
    writeln!(code, "pub static OPERATORS: [Operator; OPERATOR_COUNT] = [")?;
    for row in rows {
        let name = names.iter().position(|name| *name == row.operator);
        writeln!(
            code,
            "    Operator {{ symbol: c{:?}, library: Library::{}, name_index: {}, prototype: {:?} }},",
            row.symbol,
            row.library,
            name.unwrap_or_default(),
            row.prototype,
        )?;
    }
    writeln!(code, "];\n")?;
    write_macro(&mut code, rows)?;
    Ok(code)
}

fn write_macro(code: &mut String, rows: &[Row]) -> fmt::Result {
    writeln!(
        code,
        "/// Calls the macro named with a group for each call of `OPERATORS`, in its order:\n\
         /// index, symbol, the form in which its work is stated, the source of it, and its\n\
         /// parameters as they cross the binary interface.\n\
         #[macro_export]\n\
         macro_rules! for_each_operator {{\n\
         \x20   ($($callback:ident)::+) => {{ $($callback)::+! {{"
    )?;
    for (index, row) in rows.iter().enumerate() {
        let parameters: Vec<String> = row
            .parameters
            .iter()
            .map(|(name, kind)| format!("{name}: {kind}"))
            .collect();
        writeln!(
            code,
            "        {{ {index} {} {} [{}] ({}) }}",
            row.symbol,
            row.form,
            row.stated.join(", "),
            parameters.join(", "),
        )?;
    }
    writeln!(code, "    }} }};\n}}")
}
