//! What a column holds. A column's type is the narrowest that all its values have: integer, number, boolean, date, or
//! else text. Gaps count for none.

use std::collections::HashSet;

use serde::Serialize;

/// Beyond so many, distinct values are no longer told apart: they are a key then, and keeping them costs memory.
const MAX_DISTINCT: usize = 20_000;

/// An empty field, or what people write into one.
pub fn is_null(field: &str) -> bool {
    matches!(field.trim(), "" | "NA" | "N/A" | "null" | "NULL")
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Type {
    Integer,
    Number,
    Boolean,
    Date,
    Text,
}

impl Type {
    fn of(field: &str) -> Self {
        if field.parse::<i64>().is_ok() {
            Self::Integer
        } else if field.parse::<f64>().is_ok_and(f64::is_finite) {
            Self::Number
        } else if matches!(field, "true" | "false" | "True" | "False" | "TRUE" | "FALSE") {
            Self::Boolean
        } else if is_date(field) {
            Self::Date
        } else {
            Self::Text
        }
    }

    /// The narrowest type that holds the values of both.
    fn with(self, other: Self) -> Self {
        match (self, other) {
            (a, b) if a == b => a,
            (Self::Integer | Self::Number, Self::Integer | Self::Number) => Self::Number,
            _ => Self::Text,
        }
    }
}

/// YYYY-MM-DD, perhaps with a time after it.
fn is_date(field: &str) -> bool {
    let (Some(day), Some(rest)) = (field.get(..10), field.get(10..)) else { return false };
    let mut parts = day.split('-').map(|part| (part.len(), part.parse::<u32>().unwrap_or(0)));
    let parts = (parts.next(), parts.next(), parts.next(), parts.next());
    matches!(parts, (Some((4, 1..)), Some((2, 1..=12)), Some((2, 1..=31)), None))
        && (rest.is_empty() || rest.starts_with(['T', ' ']))
}

/// A column on the way through its rows.
pub struct Column {
    name: String,
    ty: Option<Type>,
    nulls: u64,
    distinct: HashSet<String>,
    more_distinct: bool,
    numbers: Numbers,
    /// The first and the last in the order of bytes, which is the order of time for dates.
    text: Option<(String, String)>,
}

struct Numbers {
    count: u64,
    sum: f64,
    min: f64,
    max: f64,
}

impl Column {
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            ty: None,
            nulls: 0,
            distinct: HashSet::new(),
            more_distinct: false,
            numbers: Numbers { count: 0, sum: 0.0, min: f64::INFINITY, max: f64::NEG_INFINITY },
            text: None,
        }
    }

    pub fn add(&mut self, field: &str) {
        if is_null(field) {
            self.nulls += 1;
            return;
        }
        let field = field.trim();
        let ty = Type::of(field);
        self.ty = Some(self.ty.map_or(ty, |so_far| so_far.with(ty)));
        if matches!(ty, Type::Integer | Type::Number) {
            let number = field.parse().expect("a number's type was found by parsing it");
            self.numbers.add(number);
        }
        // A value that was seen before changes none of what follows.
        if self.distinct.contains(field) {
            return;
        }
        if self.distinct.len() < MAX_DISTINCT {
            self.distinct.insert(field.to_owned());
        } else {
            self.more_distinct = true;
        }
        match &mut self.text {
            None => self.text = Some((field.to_owned(), field.to_owned())),
            Some((min, _)) if field < min.as_str() => field.clone_into(min),
            Some((_, max)) if field > max.as_str() => field.clone_into(max),
            Some(_) => (),
        }
    }

    pub fn summary(self) -> Summary {
        let ty = self.ty.unwrap_or(Type::Text);
        let (min, max, mean) = match (ty, self.text) {
            (Type::Integer | Type::Number, _) => {
                let numbers = self.numbers;
                let mean = numbers.sum / numbers.count as f64;
                (Some(Value::Number(numbers.min)), Some(Value::Number(numbers.max)), Some(mean))
            }
            (Type::Boolean | Type::Date | Type::Text, Some((min, max))) => {
                (Some(Value::Text(min)), Some(Value::Text(max)), None)
            }
            (Type::Boolean | Type::Date | Type::Text, None) => (None, None, None),
        };
        Summary {
            name: self.name,
            ty,
            nulls: self.nulls,
            distinct: self.distinct.len(),
            more_distinct: self.more_distinct,
            min,
            max,
            mean,
        }
    }
}

impl Numbers {
    fn add(&mut self, number: f64) {
        self.count += 1;
        self.sum += number;
        self.min = self.min.min(number);
        self.max = self.max.max(number);
    }
}

/// What the report says of a column.
#[derive(Debug, Serialize)]
pub struct Summary {
    name: String,
    #[serde(rename = "type")]
    ty: Type,
    nulls: u64,
    distinct: usize,
    /// There are more distinct values than were counted.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    more_distinct: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    min: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mean: Option<f64>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Value {
    Number(f64),
    Text(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(fields: &[&str]) -> Summary {
        let mut column = Column::new("x");
        for field in fields {
            column.add(field);
        }
        column.summary()
    }

    #[test]
    fn the_narrowest_type_wins() {
        let ty = |fields: &[&str]| summary(fields).ty;
        assert_eq!(ty(&["1", "-2", ""]), Type::Integer);
        assert_eq!(ty(&["1", "2.5", "1e3"]), Type::Number);
        assert_eq!(ty(&["true", "False"]), Type::Boolean);
        assert_eq!(ty(&["2012-01-31", "2012-12-01T10:00:00Z"]), Type::Date);
        assert_eq!(ty(&["2012-13-01"]), Type::Text);
        assert_eq!(ty(&["1", "x"]), Type::Text);
        assert_eq!(ty(&["1", "true"]), Type::Text);
        assert_eq!(ty(&["inf", "NaN"]), Type::Text);
        assert_eq!(ty(&["", "NA"]), Type::Text);
    }

    #[test]
    fn numbers_are_ordered_as_numbers_and_words_as_words() {
        let numbers = summary(&["9", "10", "9"]);
        assert!(matches!((numbers.min, numbers.max), (Some(Value::Number(9.0)), Some(Value::Number(10.0)))));
        assert_eq!(numbers.distinct, 2);
        assert!(numbers.mean.is_some_and(|mean| (mean - 28.0 / 3.0).abs() < 1e-12));
        let words = summary(&["pear", "apple", "zebra"]);
        assert!(
            matches!((words.min, words.max), (Some(Value::Text(min)), Some(Value::Text(max))) if min == "apple" && max == "zebra")
        );
        assert_eq!(words.mean, None);
    }

    #[test]
    fn distinct_values_are_counted_up_to_a_bound() {
        let values: Vec<String> = (0..=MAX_DISTINCT).map(|n| format!("v{n}")).collect();
        let column = summary(&values.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(column.more_distinct);
        assert_eq!(column.distinct, MAX_DISTINCT);
    }
}
