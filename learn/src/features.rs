//! From named fields to rows of numbers. The caller declares a [`Schema`]: fields that are
//! categories (the name of a network, of a GPU) and fields that are numbers (a batch, a peak). An
//! [`Encoder`] gives each number one column, and each value of a category one, when it is first
//! learnt. A *sparse* row, for [`crate::fm_ftrl`], has the columns that apply: 1 for a category,
//! for a number its place in its range. A *dense* row, for [`crate::forest`], has all columns so
//! far.
//!
//! Numbers are scaled by the schema's range, low to 0 and high to 1, and clamped: a learnt range
//! would change what weights mean while they are learnt. A missing value, and a value of a category
//! that was never learnt, have no column in a sparse row. In a dense row a missing number is -1, so
//! that a tree can distinguish it from the lowest. No field may name the sample itself: its value
//! is new each time, so it says nothing of the next one, and it fills the columns.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The kind of a field's values.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub enum Kind {
    /// One of some names.
    Category {
        /// Names that get a column; later ones have none.
        values_max: u16,
    },
    /// A number.
    Number {
        /// The number that becomes 0, as do all below it.
        low: f64,
        /// The number that becomes 1, as do all above it.
        high: f64,
    },
}

/// A named field.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Field {
    /// Its name, for errors.
    pub name: String,
    /// The kind of its values.
    pub kind: Kind,
}

impl Field {
    /// A field of at most so many names.
    #[must_use]
    pub fn category(name: &str, values_max: u16) -> Self {
        let kind = Kind::Category { values_max };
        let name = name.to_owned();
        Self { name, kind }
    }

    /// A field of numbers in this range.
    #[must_use]
    pub fn number(name: &str, low: f64, high: f64) -> Self {
        let kind = Kind::Number { low, high };
        let name = name.to_owned();
        Self { name, kind }
    }
}

/// The fields of all samples of a model, in their order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Vec<Field>", into = "Vec<Field>")]
pub struct Schema(Vec<Field>);

impl TryFrom<Vec<Field>> for Schema {
    type Error = SchemaError;

    fn try_from(fields: Vec<Field>) -> Result<Self, SchemaError> {
        Self::new(fields)
    }
}

impl From<Schema> for Vec<Field> {
    fn from(schema: Schema) -> Self {
        schema.0
    }
}

/// Why fields make no valid schema.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SchemaError {
    /// There are none, or too many.
    #[error("{fields} fields: expected 1 to {max}", max = FIELDS_MAX)]
    Fields {
        /// How many there are.
        fields: usize,
    },
    /// A name is empty, too long, or there twice.
    #[error("the field name {name:?}: expected 1 to {max} bytes, and each name once", max = NAME_MAX)]
    Name {
        /// The name.
        name: String,
    },
    /// A range is invalid.
    #[error(
        "field {name:?}: the range {low} to {high}: expected two finite numbers, the lower first"
    )]
    Range {
        /// The field.
        name: String,
        /// Its low end.
        low: f64,
        /// Its high end.
        high: f64,
    },
    /// Together the fields have too many columns.
    #[error("{columns} columns: expected at most {max}", max = COLUMNS_MAX)]
    Columns {
        /// How many there are at most.
        columns: usize,
    },
}

impl Schema {
    /// The schema with these fields.
    ///
    /// # Errors
    /// See [`SchemaError`].
    pub fn new(fields: Vec<Field>) -> Result<Self, SchemaError> {
        if fields.is_empty() || fields.len() > FIELDS_MAX {
            let fields = fields.len();
            return Err(SchemaError::Fields { fields });
        }
        let mut columns = 0;
        for (place, Field { name, kind }) in fields.iter().enumerate() {
            let is_twice = fields[..place].iter().any(|field| field.name == *name);
            if name.is_empty() || name.len() > NAME_MAX || is_twice {
                let name = name.chars().take(NAME_MAX).collect();
                return Err(SchemaError::Name { name });
            }
            columns += match *kind {
                Kind::Category { values_max } => usize::from(values_max),
                Kind::Number { low, high } if low < high && (high - low).is_finite() => 1,
                Kind::Number { low, high } => {
                    let name = name.clone();
                    return Err(SchemaError::Range { name, low, high });
                }
            };
        }
        if columns > COLUMNS_MAX {
            return Err(SchemaError::Columns { columns });
        }
        Ok(Self(fields))
    }

    /// The fields.
    #[must_use]
    pub fn fields(&self) -> &[Field] {
        &self.0
    }
}

/// The value of a field in one sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// A name, for a field of categories.
    Name(&'a str),
    /// A number, for a field of numbers.
    Number(f64),
    /// Nothing: the field does not apply, or is unknown.
    Missing,
}

/// Why values do not fit a schema.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ValueError {
    /// There are more or fewer values than fields.
    #[error("{values} values, expected {fields}, one for each field")]
    Count {
        /// How many values there are.
        values: usize,
        /// How many fields there are.
        fields: usize,
    },
    /// A name for a number or the reverse, a number that is not finite, or a name that is too long.
    #[error("field {field:?} is {value}: expected {expected}")]
    Value {
        /// The field.
        field: String,
        /// Its value.
        value: String,
        /// The expected value.
        expected: String,
    },
}

/// A sparse row: columns and their numbers, by column.
pub type Row = Vec<(u32, f64)>;

/// Knows the column of each number and each name.
#[derive(Clone, Debug, PartialEq)]
pub struct Encoder {
    schema: Schema,
    names: Vec<(usize, String)>,
    /// The columns of each field: of a number one, under no name.
    columns: Vec<BTreeMap<String, u32>>,
    numbers: u32,
}

impl Encoder {
    /// An encoder that knows no name.
    #[must_use]
    pub fn new(schema: Schema) -> Self {
        let mut numbers = 0;
        let mut columns = Vec::new();
        for field in schema.fields() {
            let mut own = BTreeMap::new();
            if let Kind::Number { .. } = field.kind {
                own.insert(String::new(), numbers);
                numbers += 1;
            }
            columns.push(own);
        }
        Self {
            schema,
            names: Vec::new(),
            columns,
            numbers,
        }
    }

    /// The encoder that has learnt these names (with fields) in this order; None if impossible.
    pub(crate) fn restore(schema: Schema, names: Vec<(usize, String)>) -> Option<Self> {
        let mut encoder = Self::new(schema);
        for (field, name) in names {
            let before = encoder.names.len();
            let is_category = matches!(
                encoder.schema.0.get(field)?.kind,
                Kind::Category { values_max } if usize::from(values_max) > encoder.columns[field].len()
            );
            if !is_category || name.len() > NAME_MAX {
                return None;
            }
            encoder.register(field, &name);
            if encoder.names.len() == before {
                return None;
            }
        }
        Some(encoder)
    }

    /// The schema of the encoder.
    #[must_use]
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    pub(crate) fn names(&self) -> &[(usize, String)] {
        &self.names
    }

    /// How many columns there are so far.
    #[must_use]
    pub fn columns(&self) -> u32 {
        self.numbers + self.names.len() as u32
    }

    /// The row of these values, one for each field, by what is known so far.
    ///
    /// # Errors
    /// See [`ValueError`].
    pub fn encode(&self, values: &[Value<'_>]) -> Result<Row, ValueError> {
        if values.len() != self.schema.0.len() {
            return Err(ValueError::Count {
                values: values.len(),
                fields: self.schema.0.len(),
            });
        }
        let mut row = Row::with_capacity(values.len());
        for ((field, columns), value) in self.schema.0.iter().zip(&self.columns).zip(values) {
            let cell = match (field.kind, *value) {
                (_, Value::Missing) => None,
                (Kind::Category { .. }, Value::Name(name)) if name.len() <= NAME_MAX => {
                    columns.get(name).map(|&column| (column, 1.0))
                }
                (Kind::Number { low, high }, Value::Number(number)) if number.is_finite() => {
                    let scaled = (number.clamp(low, high) - low) / (high - low);
                    columns.get("").map(|&column| (column, scaled))
                }
                _ => return Err(refuse(field, value)),
            };
            row.extend(cell);
        }
        row.sort_unstable_by_key(|&(column, _)| column);
        Ok(row)
    }

    /// The row of these values; names that are new get columns first, while there is place.
    ///
    /// # Errors
    /// See [`ValueError`]; the encoder is then as before.
    pub fn learn(&mut self, values: &[Value<'_>]) -> Result<Row, ValueError> {
        self.encode(values)?;
        for (field, value) in values.iter().enumerate() {
            if let Value::Name(name) = value {
                self.register(field, name);
            }
        }
        self.encode(values)
    }

    fn register(&mut self, field: usize, name: &str) {
        let Kind::Category { values_max } = self.schema.0[field].kind else {
            return;
        };
        let column = self.columns();
        let known = &mut self.columns[field];
        if known.len() < usize::from(values_max) && !known.contains_key(name) {
            known.insert(name.to_owned(), column);
            self.names.push((field, name.to_owned()));
        }
    }

    /// The dense row of a sparse one, with the first `width` columns.
    #[must_use]
    pub fn dense(&self, row: &[(u32, f64)], width: u32) -> Vec<f64> {
        dense(row, self.numbers, width)
    }

    pub(crate) fn numbers(&self) -> u32 {
        self.numbers
    }
}

pub(crate) fn dense(row: &[(u32, f64)], numbers: u32, width: u32) -> Vec<f64> {
    let mut dense = vec![0.0; width as usize];
    dense[..numbers.min(width) as usize].fill(MISSING);
    for &(column, value) in row {
        if let Some(cell) = dense.get_mut(column as usize) {
            *cell = value;
        }
    }
    dense
}

fn refuse(field: &Field, value: &Value<'_>) -> ValueError {
    let value = match value {
        Value::Name(name) => format!("{:?}", name.chars().take(NAME_MAX).collect::<String>()),
        Value::Number(number) => number.to_string(),
        Value::Missing => "missing".to_owned(),
    };
    let expected = match field.kind {
        Kind::Category { .. } => format!("a name of at most {NAME_MAX} bytes"),
        Kind::Number { .. } => "a finite number".to_owned(),
    };
    let field = field.name.clone();
    ValueError::Value {
        field,
        value,
        expected,
    }
}

/// Most fields of a schema.
pub const FIELDS_MAX: usize = 64;

/// Most columns that the fields of a schema can have together.
pub const COLUMNS_MAX: usize = 4096;

/// Most bytes of the name of a field or of a category.
pub const NAME_MAX: usize = 128;

/// A missing number in a dense row; numbers that are there are from 0 to 1.
const MISSING: f64 = -1.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn encoder() -> Encoder {
        let fields = vec![
            Field::category("network", 2),
            Field::number("batch", 0.0, 10.0),
            Field::category("gpu", 8),
        ];
        Encoder::new(Schema::new(fields).unwrap())
    }

    #[test]
    fn a_name_gets_a_column_when_it_is_learnt_and_none_when_there_is_no_place() {
        let mut encoder = encoder();
        let row = |network| {
            [
                Value::Name(network),
                Value::Number(5.0),
                Value::Name("V100"),
            ]
        };
        assert_eq!(encoder.encode(&row("LM")).unwrap(), [(0, 0.5)]);
        let learnt = [(0, 0.5), (1, 1.0), (2, 1.0)];
        assert_eq!(encoder.learn(&row("LM")).unwrap(), learnt);
        assert_eq!(encoder.encode(&row("LM")).unwrap(), learnt);
        assert_eq!(encoder.encode(&row("A3C")).unwrap(), [(0, 0.5), (2, 1.0)]);
        encoder.learn(&row("A3C")).unwrap();
        let full = encoder.clone();
        encoder.learn(&row("CycleGAN")).unwrap();
        assert_eq!(encoder, full);
        let again = Encoder::restore(full.schema().clone(), full.names().to_vec());
        assert_eq!(again, Some(full));
    }

    #[test]
    fn numbers_are_clamped_to_their_range_and_a_missing_one_is_known_as_such() {
        let mut encoder = encoder();
        let row = |batch| [Value::Name("LM"), batch, Value::Missing];
        encoder.learn(&row(Value::Missing)).unwrap();
        let dense = |batch| encoder.dense(&encoder.encode(&row(batch)).unwrap(), encoder.columns());
        assert_eq!(dense(Value::Number(20.0)), [1.0, 1.0]);
        assert_eq!(dense(Value::Number(-1.0)), [0.0, 1.0]);
        assert_eq!(dense(Value::Missing), [-1.0, 1.0]);
        let full = encoder.encode(&row(Value::Number(2.5))).unwrap();
        assert_eq!(encoder.dense(&full, 1), [0.25]);
    }

    #[test]
    fn values_that_are_not_of_their_field_are_refused() {
        let mut encoder = encoder();
        let before = encoder.clone();
        let mut refused = |values: &[Value<'_>]| encoder.learn(values).unwrap_err().to_string();
        let (name, number) = (Value::Name("LM"), Value::Number(1.0));
        assert_eq!(refused(&[name]), "1 values, expected 3, one for each field");
        assert_eq!(
            refused(&[name, Value::Number(f64::NAN), name]),
            "field \"batch\" is NaN: expected a finite number"
        );
        assert_eq!(
            refused(&[name, name, name]),
            "field \"batch\" is \"LM\": expected a finite number"
        );
        assert_eq!(
            refused(&[number, number, name]),
            "field \"network\" is 1: expected a name of at most 128 bytes"
        );
        assert_eq!(encoder, before);
    }

    #[test]
    fn fields_that_are_no_schema_are_refused() {
        let refused = |fields| Schema::new(fields).unwrap_err().to_string();
        assert_eq!(refused(vec![]), "0 fields: expected 1 to 64");
        let twice = vec![Field::category("a", 1), Field::number("a", 0.0, 1.0)];
        assert!(refused(twice).starts_with("the field name \"a\": "));
        let range = vec![Field::number("a", 1.0, 1.0)];
        assert!(refused(range).starts_with("field \"a\": the range 1 to 1: "));
        let columns = vec![Field::category("a", u16::MAX)];
        let read = serde_json::to_string(&columns).unwrap();
        let read = serde_json::from_str::<Schema>(&read).unwrap_err();
        assert_eq!(read.to_string(), refused(columns.clone()));
        assert_eq!(refused(columns), "65535 columns: expected at most 4096");
    }
}
