//! When a cron expression fires in a time zone, and what becomes of the fires that were missed. Pure: the caller says what
//! time it is, by the database's clock.
//!
//! Two kinds of expressions, told apart by the hours they name:
//!
//! - One that names **every hour** (`*/15 * * * *`, `@hourly`) is an interval. It fires whenever the zone's clock shows it, so the
//!   hour that a clock skips has no fires, the hour that it repeats has them twice, and between two fires goes by what always
//!   goes by.
//! - One that names **some hours** (`30 2 * * *`, `0 8-18 * * *`, `0 */2 * * *`) means times of the day, and each fires once a day: one that
//!   the clock skips fires at the first instant after the gap (several of one gap are one fire), one that the clock shows
//!   twice fires at the first.
//!
//! Croner only parses and steps a wall clock that never jumps; what a zone's jumps do is done here, from one transition to the
//! next. Croner's own rule takes `0 2,14 * * *` for an interval and so drops its fire in a gap.

use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;
use std::time::Duration;

use croner::errors::CronError;
use croner::parser::{CronParser, Seconds, Year};
use croner::{CivilDate, CivilDateTime, CivilTime, CronDateTime, Resolution, Weekday};
use jiff::Timestamp;
use jiff::tz::{Offset, TimeZone, TimeZoneDatabase};

#[cfg(test)]
mod tests;

/// The longest expression. Nobody writes one of more than a few dozen characters.
pub const MAX_CRON_BYTES: usize = 255;
/// A fire is missed when it is so late: longer than a worker's restart, shorter than the patience of whoever waits for it.
pub const MISSED_AFTER: Duration = Duration::from_secs(60);

/// Further than any clock is from UTC, or ever jumps: before this, an instant whose clock shows a time cannot be.
const NEAR: i64 = 3 * 24 * 3600;

/// The calendar repeats itself after 400 years, so what does not come in the last that croner knows, from 4600 to 4999, never
/// comes. Looking from here on takes an eighth of the time that it takes from now on.
const LAST_400_YEARS: Second = 82_994_803_200;

static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// An instant in whole seconds since 1970, as every fire is.
pub type Second = i64;

/// A cron expression in its time zone.
#[derive(Debug, Clone)]
pub struct Cron {
    pattern: croner::Cron,
    zone: TimeZone,
    every_hour: bool,
}

/// Why there is no such schedule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadCron(String);

impl Cron {
    /// Refuses what cannot be read and what would never fire.
    pub fn parse(cron: &str, time_zone: &str) -> Result<Self, BadCron> {
        let zone = ZONES.get(time_zone).ok().filter(|zone| zone.iana_name() == Some(time_zone));
        let zone = zone.ok_or_else(|| BadCron(format!("no time zone is named {:?}", clip(time_zone))))?;
        let pattern = parse_pattern(cron)?;
        let hour_bits = (0..24).filter(|hour| pattern.pattern.hour_match(*hour).unwrap_or(false)).count();
        let cron_in_zone = Self { pattern, zone, every_hour: hour_bits == 24 };
        if cron_in_zone.next_wall(LAST_400_YEARS).is_none() {
            return Err(BadCron(format!("cron expression {:?} never fires: no month has such a day", clip(cron))));
        }
        Ok(cron_in_zone)
    }

    pub fn zone(&self) -> &TimeZone {
        &self.zone
    }

    /// The first fire after an instant. None at the end of the calendar that croner knows, in the year 5000.
    pub fn next(&self, after: Second) -> Option<Second> {
        let mut segment = self.segment(after)?;
        let mut wall_after = after + segment.offset;
        loop {
            // Times that the clock had already shown before it went back.
            wall_after = wall_after.max(segment.first_wall - 1);
            let wall = self.next_wall(wall_after)?;
            let Some(end) = segment.end else { return Some(wall - segment.offset) };
            if wall < end + segment.offset {
                return Some(wall - segment.offset);
            }
            let following = self.segment(end)?;
            if !self.every_hour && wall < end + following.offset {
                return Some(end); // in the gap
            }
            if wall - NEAR > end {
                // No need to go through all the jumps before it.
                segment = self.segment(wall - NEAR)?;
                wall_after = wall - NEAR + segment.offset;
            } else {
                wall_after = end + following.offset - 1;
                segment = following;
            }
        }
    }

    /// The last fire at or before an instant.
    pub fn last(&self, until: Second) -> Option<Second> {
        let mut at = until;
        loop {
            let segment = self.segment(at)?;
            let wall = self.last_wall(at + segment.offset)?;
            if wall >= segment.first_wall {
                return Some(wall - segment.offset);
            }
            let start = segment.start?;
            let before = self.segment(start - 1)?;
            let skipped = start + before.offset..start + segment.offset;
            if !self.every_hour && self.last_wall(skipped.end - 1).is_some_and(|wall| skipped.contains(&wall)) {
                return Some(start); // for what was in the gap
            }
            at = (start - 1).min(wall + NEAR);
        }
    }

    /// The time between two jumps of the zone's clock in which an instant lies.
    fn segment(&self, at: Second) -> Option<Segment> {
        let instant = Timestamp::from_second(at).ok()?;
        let offset = self.offset(instant);
        let start = self.zone.preceding(Timestamp::from_second(at + 1).ok()?).next();
        let start = start.map(|transition| transition.timestamp().as_second());
        let end = self.zone.following(instant).next().map(|transition| transition.timestamp().as_second());
        // Of a clock that went back, times of the day count only from where it had been.
        let shown_before = match start {
            Some(start) if !self.every_hour => self.offset(Timestamp::from_second(start - 1).ok()?),
            _ => offset,
        };
        let first_wall = start.map_or(i64::MIN + 1, |start| start + offset.max(shown_before));
        Some(Segment { start, end, offset, first_wall })
    }

    fn offset(&self, at: Timestamp) -> i64 {
        i64::from(self.zone.to_offset(at).seconds())
    }

    fn next_wall(&self, after: Second) -> Option<Second> {
        self.pattern.find_next_occurrence(&Wall(after), false).ok().map(|wall| wall.0)
    }

    fn last_wall(&self, until: Second) -> Option<Second> {
        self.pattern.find_previous_occurrence(&Wall(until), true).ok().map(|wall| wall.0)
    }
}

struct Segment {
    /// The jump that begins it, and the one that ends it.
    start: Option<Second>,
    end: Option<Second>,
    /// What the clock shows is the instant and so many seconds.
    offset: i64,
    /// The first time on the clock that counts here.
    first_wall: Second,
}

fn parse_pattern(cron: &str) -> Result<croner::Cron, BadCron> {
    let bad = |why: String| BadCron(format!("cron expression {:?}: {why}", clip(cron)));
    if cron.len() > MAX_CRON_BYTES {
        return Err(bad(format!("{} bytes exceed the limit of {MAX_CRON_BYTES}", cron.len())));
    }
    let lower = cron.trim().to_ascii_lowercase();
    let text = match lower.as_str() {
        "@hourly" => "0 * * * *",
        "@daily" | "@midnight" => "0 0 * * *",
        "@weekly" => "0 0 * * 0",
        "@monthly" => "0 0 1 * *",
        "@yearly" | "@annually" => "0 0 1 1 *",
        name if name.starts_with('@') => {
            return Err(bad("names are @hourly, @daily, @midnight, @weekly, @monthly, @yearly and @annually".into()));
        }
        fields => fields,
    };
    let fields: Vec<_> = text.split_ascii_whitespace().collect();
    if !(5..=6).contains(&fields.len()) {
        return Err(bad(format!("{} fields; write 5, or 6 with seconds first", fields.len())));
    }
    if let Some(other) = text.chars().find(|c| !c.is_ascii_alphanumeric() && !" \t*,-/#".contains(*c)) {
        return Err(bad(format!("{other:?} has no place in it")));
    }
    check_words(&fields).map_err(bad)?;
    let parser = CronParser::builder().seconds(Seconds::Optional).year(Year::Disallowed).build();
    parser.parse(text).map_err(|error| match error {
        CronError::InvalidPattern(why) | CronError::IllegalCharacters(why) | CronError::ComponentError(why) => bad(why),
        other => bad(other.to_string()),
    })
}

/// Croner replaces the names of days and months wherever they stand, so `janfeb` would be December.
fn check_words(fields: &[&str]) -> Result<(), String> {
    const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
    const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
    for (place, field) in fields.iter().rev().enumerate() {
        for word in field.split(|c: char| !c.is_ascii_alphabetic()).filter(|word| !word.is_empty()) {
            let known = match place {
                0 => DAYS.contains(&word) || word == "l",
                1 => MONTHS.contains(&word),
                2 => ["l", "w", "lw"].contains(&word),
                _ => false,
            };
            if !known {
                return Err(format!("{word:?} has no meaning in {field:?}"));
            }
        }
    }
    Ok(())
}

/// What is cited of a text that may be a megabyte.
fn clip(text: &str) -> String {
    text.chars().take(80).collect()
}

/// A wall clock without a zone: seconds since 1970 as it shows them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Wall(Second);

impl Wall {
    fn civil(self) -> jiff::civil::DateTime {
        // Croner stays within the years 1 to 5000, and an instant of ours within jiff's.
        let end = if self.0 < 0 { Timestamp::MIN } else { Timestamp::MAX };
        Offset::UTC.to_datetime(Timestamp::from_second(self.0).unwrap_or(end))
    }
}

impl CronDateTime for Wall {
    fn to_civil(&self) -> CivilDateTime {
        let civil = self.civil();
        let part = |part: i8| u32::from(part.unsigned_abs());
        CivilDateTime::new(
            CivilDate::from_parts_unchecked(i32::from(civil.year()), part(civil.month()), part(civil.day())),
            CivilTime::from_parts_unchecked(part(civil.hour()), part(civil.minute()), part(civil.second())),
        )
    }

    fn civil_weekday(&self) -> Weekday {
        let day = self.civil().weekday().to_sunday_zero_offset();
        Weekday::from_days_from_sunday(u32::from(day.unsigned_abs()))
    }

    fn resolve_civil(&self, civil: CivilDateTime) -> Result<Resolution<Self>, CronError> {
        let (date, time) = (civil.date(), civil.time());
        let small = |part: u32| i8::try_from(part).map_err(|_| CronError::InvalidTime);
        let year = i16::try_from(date.year()).map_err(|_| CronError::InvalidDate)?;
        let civil = jiff::civil::DateTime::new(
            year,
            small(date.month())?,
            small(date.day())?,
            small(time.hour())?,
            small(time.minute())?,
            small(time.second())?,
            0,
        );
        let instant = civil.and_then(|civil| Offset::UTC.to_timestamp(civil)).map_err(|_| CronError::InvalidDate)?;
        Ok(Resolution::Single(Self(instant.as_second())))
    }

    fn checked_add_seconds(&self, seconds: i64) -> Option<Self> {
        Some(Self(self.0.checked_add(seconds)?))
    }

    fn cmp_instant(&self, other: &Self) -> std::cmp::Ordering {
        self.cmp(other)
    }
}

/// What becomes of fires that nobody was there for: workers were down, the schedule was paused, its module switched off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Missed {
    /// They are lost. Of several that are due, the last fires when it is less than `MISSED_AFTER` late.
    Skip,
    /// All that are due are one job, of the last.
    Once,
    /// Each is a job, up to the schedule's limit; then the last ones.
    All,
}

impl Missed {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Skip => "skip",
            Self::Once => "once",
            Self::All => "all",
        }
    }
}

impl fmt::Display for Missed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Missed {
    type Err = anyhow::Error;
    fn from_str(s: &str) -> anyhow::Result<Self> {
        match s {
            "skip" => Ok(Self::Skip),
            "once" => Ok(Self::Once),
            "all" => Ok(Self::All),
            other => anyhow::bail!("unknown policy {other:?}; policies for missed fires are skip, once and all"),
        }
    }
}

/// A schedule at which somebody has to look now, as the database tells of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Due {
    /// The database's clock, in microseconds since 1970.
    pub now_micros: i64,
    /// The nominal time that is due; None when none has been computed yet.
    pub next_fire: Option<Second>,
    /// By how much later than its nominal time each fire of the schedule comes.
    pub spread_offset: Duration,
    pub missed: Missed,
    pub missed_limit: usize,
}

/// What to do with it: enqueue a job for each of these nominal times, and go on from there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub fires: Vec<Second>,
    pub next_fire: Second,
}

impl Cron {
    /// Errs when nothing follows.
    pub fn plan(&self, due: &Due) -> Result<Plan, BadCron> {
        let nothing_follows = || BadCron("no fire follows before the year 5000".into());
        let now = due.now_micros.div_euclid(1_000_000);
        let Some(first) = due.next_fire else {
            return Ok(Plan { fires: Vec::new(), next_fire: self.next(now).ok_or_else(nothing_follows)? });
        };
        let offset_micros = i64::try_from(due.spread_offset.as_micros()).unwrap_or(i64::MAX);
        let until = due.now_micros.saturating_sub(offset_micros).div_euclid(1_000_000);
        if first > until {
            return Ok(Plan { fires: Vec::new(), next_fire: first });
        }
        // What was promised counts, even where the zone's rules have changed since and would not name it any more.
        let last = self.last(until).map_or(first, |last| last.max(first));
        let late_micros = due.now_micros - offset_micros - last * 1_000_000;
        let fires = match due.missed {
            Missed::Skip if late_micros >= i64::try_from(MISSED_AFTER.as_micros()).expect("a minute") => Vec::new(),
            Missed::Skip | Missed::Once => vec![last],
            Missed::All => {
                let mut fires = VecDeque::from([last]);
                while fires.len() < due.missed_limit.max(1) {
                    match self.last(fires[0] - 1) {
                        Some(fire) if fire >= first => fires.push_front(fire),
                        _ => break,
                    }
                }
                fires.into()
            }
        };
        Ok(Plan { fires, next_fire: self.next(until.max(last)).ok_or_else(nothing_follows)? })
    }
}
