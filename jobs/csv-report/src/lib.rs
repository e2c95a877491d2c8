//! Reads a CSV file and says what is in it: for each column its type, gaps, distinct values, range and mean; and, where
//! asked for, sums by group.
//!
//! Example payload: the CSV as it is, or `{"csv": "city,sales\nOslo,3\nOslo,4\n", "group_by": "city", "value": "sales"}`

use std::collections::BTreeMap;

use leasehold_guest::prelude::*;

mod column;

use column::{Column, Summary, is_null};

/// Each column costs memory for its distinct values.
const MAX_COLUMNS: usize = 1000;
/// More groups make no report, and no result that fits into a row.
const MAX_GROUPS: usize = 10_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Input {
    csv: String,
    group_by: Option<String>,
    value: Option<String>,
}

#[derive(Debug, Serialize)]
struct Report {
    rows: u64,
    columns: Vec<Summary>,
    /// By the value of the column that was named.
    #[serde(skip_serializing_if = "Option::is_none")]
    groups: Option<BTreeMap<String, Group>>,
}

#[derive(Debug, Default, Serialize)]
struct Group {
    rows: u64,
    sum: f64,
    /// Of the rows that have a value.
    mean: Option<f64>,
    #[serde(skip)]
    values: u64,
}

#[job]
fn csv_report(_ctx: &Context, payload: Raw) -> Result<Report, Failure> {
    let report = if payload.trim_ascii_start().starts_with(b"{") {
        let input: Input = payload.json()?;
        let grouping = match (input.group_by, input.value) {
            (None, None) => None,
            (Some(by), Some(value)) => Some((by, value)),
            (Some(_), None) => {
                return Err(Failure::dead("group_by says what to group by; value has to say what to add up"));
            }
            (None, Some(_)) => {
                return Err(Failure::dead("value says what to add up; group_by has to say what to group by"));
            }
        };
        report(input.csv.as_bytes(), grouping)?
    } else {
        report(&payload, None)?
    };
    info!("{} rows of {} columns", report.rows, report.columns.len());
    Ok(report)
}

fn report(csv: &[u8], grouping: Option<(String, String)>) -> Result<Report, Failure> {
    let mut reader = csv::Reader::from_reader(csv);
    let header = reader.headers().or_dead("reading the header")?.clone();
    if header.is_empty() {
        return Err(Failure::dead("the CSV is empty; its first line names the columns"));
    }
    if header.len() > MAX_COLUMNS {
        return Err(Failure::dead(format!("the CSV has {} columns; the limit is {MAX_COLUMNS}", header.len())));
    }
    let mut columns: Vec<Column> = header.iter().map(Column::new).collect();
    let mut groups = match &grouping {
        Some((by, value)) => Some(Groups::new(place(&header, by)?, place(&header, value)?)),
        None => None,
    };
    let (mut record, mut rows) = (csv::StringRecord::new(), 0);
    while reader.read_record(&mut record).or_dead("reading the CSV")? {
        rows += 1;
        for (column, field) in columns.iter_mut().zip(&record) {
            column.add(field);
        }
        if let Some(groups) = &mut groups {
            groups.add(&header, &record)?;
        }
    }
    let columns = columns.into_iter().map(Column::summary).collect();
    Ok(Report { rows, columns, groups: groups.map(Groups::finish) })
}

fn place(header: &csv::StringRecord, name: &str) -> Result<usize, Failure> {
    header.iter().position(|column| column == name).or_dead(format_args!(
        "there is no column {name:?}; there are {}",
        header.iter().take(20).collect::<Vec<_>>().join(", ")
    ))
}

struct Groups {
    by: usize,
    value: usize,
    groups: BTreeMap<String, Group>,
}

impl Groups {
    fn new(by: usize, value: usize) -> Self {
        Self { by, value, groups: BTreeMap::new() }
    }

    fn add(&mut self, header: &csv::StringRecord, record: &csv::StringRecord) -> Result<(), Failure> {
        let (by, value) = (&record[self.by], &record[self.value]);
        if !self.groups.contains_key(by) {
            if self.groups.len() == MAX_GROUPS {
                return Err(Failure::dead(format!(
                    "column {:?} makes more than {MAX_GROUPS} groups",
                    &header[self.by]
                )));
            }
            self.groups.insert(by.to_owned(), Group::default());
        }
        let group = self.groups.get_mut(by).expect("the group was just added");
        group.rows += 1;
        if !is_null(value) {
            let line = record.position().map_or(0, csv::Position::line);
            let number: f64 = value
                .trim()
                .parse()
                .or_dead(format_args!("line {line}: {value:?} in column {:?} is no number", &header[self.value]))?;
            group.values += 1;
            group.sum += number;
        }
        Ok(())
    }

    fn finish(mut self) -> BTreeMap<String, Group> {
        for group in self.groups.values_mut() {
            group.mean = (group.values > 0).then(|| group.sum / group.values as f64);
        }
        self.groups
    }
}

#[cfg(test)]
mod tests {
    use leasehold_guest::testing::{self, MockContext, Value, json};

    use super::*;

    const WEATHER: &str = include_str!("../sample/weather.csv");

    fn run(payload: impl Into<Raw>) -> Result<Value, Failure> {
        let result = testing::run_raw(csv_report, &MockContext::new(), payload)?;
        Ok(Raw(result).json().expect("a report is JSON"))
    }

    #[test]
    fn a_year_of_weather_is_summed_up() {
        let report = run(WEATHER).expect("the sample is CSV");
        assert_eq!(report["rows"], 2922);
        let names: Vec<_> = report["columns"].as_array().expect("columns").iter().map(|c| &c["name"]).collect();
        assert_eq!(names, ["location", "date", "precipitation", "temp_max", "temp_min", "wind", "weather"]);
        assert_eq!(
            report["columns"][1],
            json!({ "name": "date", "type": "date", "nulls": 0, "distinct": 1461,
                    "min": "2012-01-01", "max": "2015-12-31" })
        );
        // The numbers are those that awk finds.
        let wanted =
            json!({ "name": "temp_max", "type": "number", "nulls": 0, "distinct": 90, "min": -7.7, "max": 37.8 });
        let mut temperature = report["columns"][3].clone();
        let mean = temperature.as_object_mut().and_then(|column| column.remove("mean")).expect("a mean");
        assert!((mean.as_f64().expect("a number") - 16.769_130_732_4).abs() < 1e-9, "{mean}");
        assert_eq!(temperature, wanted);
        assert_eq!(report.get("groups"), None);
    }

    #[test]
    fn groups_add_up_to_the_whole() {
        let report = run(json!({ "csv": WEATHER, "group_by": "weather", "value": "precipitation" }).to_string());
        let groups = report.expect("the sample has both columns")["groups"].clone();
        let groups = groups.as_object().expect("groups");
        assert_eq!(groups.keys().collect::<Vec<_>>(), ["drizzle", "fog", "rain", "snow", "sun"]);
        assert_eq!(groups.values().map(|group| group["rows"].as_u64().expect("a count")).sum::<u64>(), 2922);
        let whole: f64 = WEATHER
            .lines()
            .skip(1)
            .map(|line| line.split(',').nth(2).expect("a field").parse::<f64>().expect("a number"))
            .sum();
        let parts: f64 = groups.values().map(|group| group["sum"].as_f64().expect("a sum")).sum();
        assert!((whole - parts).abs() < 1e-6, "{whole} is not {parts}");
    }

    #[test]
    fn quoted_fields_and_gaps_are_understood() {
        let payload = json!({ "csv": "city,sales\n\"Oslo, N\",3\n\"Oslo, N\",\nRome,NA\n", "group_by": "city", "value": "sales" });
        let report = run(payload.to_string()).expect("this is CSV");
        let groups = json!({ "Oslo, N": { "rows": 2, "sum": 3.0, "mean": 3.0 }, "Rome": { "rows": 1, "sum": 0.0, "mean": null } });
        assert_eq!(report["groups"], groups);
        assert_eq!(report["columns"][1]["nulls"], 2);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let message = |payload: Value| match run(payload.to_string()) {
            Err(Failure::Dead { message }) => message,
            other => panic!("{other:?}"),
        };
        let grouped = |csv: &str, by: &str, value: &str| message(json!({ "csv": csv, "group_by": by, "value": value }));
        assert_eq!(grouped("a,b\nx,1\n", "c", "b"), "there is no column \"c\"; there are a, b");
        assert!(grouped("a,b\nx,1\ny,z\n", "a", "b").starts_with("line 3: \"z\" in column \"b\" is no number"));
        assert!(message(json!({ "csv": "a,b\nx\n" })).contains("line: 2"));
        assert_eq!(message(json!({ "csv": "" })), "the CSV is empty; its first line names the columns");
        assert!(message(json!({ "csv": "a", "group_by": "a" })).starts_with("group_by says what to group by"));
        assert!(message(json!({ "cvs": "a" })).contains("unknown field `cvs`"));
    }

    #[test]
    fn bytes_that_are_no_text_are_dead() {
        let Err(Failure::Dead { message }) = run(vec![b'a', b'\n', 0xff, b'\n']) else { panic!("this is no text") };
        assert!(message.contains("invalid UTF-8"), "{message}");
    }
}
