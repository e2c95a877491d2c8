//! Against an oracle that knows neither transitions nor croner: it looks at what the clock shows in each minute.

use std::collections::HashMap;

use super::*;

const MINUTE: i64 = 60;
const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;

fn second(text: &str) -> Second {
    text.parse::<Timestamp>().unwrap_or_else(|error| panic!("{text}: {error}")).as_second()
}

fn text(second: Second) -> String {
    Timestamp::from_second(second).expect("in range").to_string()
}

fn parse(cron: &str, zone: &str) -> Cron {
    Cron::parse(cron, zone).unwrap_or_else(|error| panic!("{cron} in {zone}: {error}"))
}

fn next(cron: &str, zone: &str, after: &str, count: usize) -> Vec<String> {
    let cron = parse(cron, zone);
    let fires = std::iter::successors(cron.next(second(after)), |fire| cron.next(*fire));
    fires.take(count).map(text).collect()
}

fn refused(cron: &str) -> String {
    Cron::parse(cron, "UTC").expect_err(cron).to_string()
}

#[test]
fn expressions_mean_what_crontab_says() {
    let new_year = "2026-01-01T00:00:00Z"; // a Thursday
    for (cron, fires) in [
        ("* * * * *", ["2026-01-01T00:01:00Z", "2026-01-01T00:02:00Z"]),
        ("*/20 * * * * *", ["2026-01-01T00:00:20Z", "2026-01-01T00:00:40Z"]),
        ("@hourly", ["2026-01-01T01:00:00Z", "2026-01-01T02:00:00Z"]),
        ("@daily", ["2026-01-02T00:00:00Z", "2026-01-03T00:00:00Z"]),
        ("@midnight", ["2026-01-02T00:00:00Z", "2026-01-03T00:00:00Z"]),
        ("@Weekly", ["2026-01-04T00:00:00Z", "2026-01-11T00:00:00Z"]),
        ("@monthly", ["2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z"]),
        ("@yearly", ["2027-01-01T00:00:00Z", "2028-01-01T00:00:00Z"]),
        ("  5\t4 * * mon-fri ", ["2026-01-01T04:05:00Z", "2026-01-02T04:05:00Z"]),
        ("0 9 * Feb,Mar SUN", ["2026-02-01T09:00:00Z", "2026-02-08T09:00:00Z"]),
        ("0 0 * * 7", ["2026-01-04T00:00:00Z", "2026-01-11T00:00:00Z"]),
        // A day of the month or a day of the week, when both are named.
        ("0 0 3 * sun", ["2026-01-03T00:00:00Z", "2026-01-04T00:00:00Z"]),
        ("0 0 29 2 *", ["2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z"]),
        ("0 12 L * *", ["2026-01-31T12:00:00Z", "2026-02-28T12:00:00Z"]),
        ("0 12 15W * *", ["2026-01-15T12:00:00Z", "2026-02-16T12:00:00Z"]),
        ("0 12 * * 5L", ["2026-01-30T12:00:00Z", "2026-02-27T12:00:00Z"]),
        ("0 12 * * fri#2", ["2026-01-09T12:00:00Z", "2026-02-13T12:00:00Z"]),
    ] {
        assert_eq!(next(cron, "UTC", new_year, 2), fires, "{cron}");
    }
}

#[test]
fn what_is_no_expression_is_refused_with_its_reason() {
    for (cron, why) in [
        ("", "0 fields; write 5, or 6 with seconds first"),
        ("* * * *", "4 fields"),
        ("* * * * * * *", "7 fields"),
        ("60 * * * *", "60"),
        ("* 24 * * *", "24"),
        ("* * 0 * *", "0"),
        ("* * * 13 *", "13"),
        ("* * * * 8", "8"),
        ("*/0 * * * *", "tep"),
        ("5-1 * * * *", ""),
        ("a * * * *", "\"a\" has no meaning"),
        ("* * * janfeb *", "\"janfeb\" has no meaning"),
        ("* * * * montue", "\"montue\" has no meaning"),
        ("* * jan * *", "\"jan\" has no meaning"),
        ("@reboot", "names are @hourly"),
        ("@", "names are @hourly"),
        ("* * * * * ; drop", "7 fields"),
        ("* * * * '", "'\\'' has no place in it"),
        ("* * * * ٣", "has no place in it"),
        ("* * * * \u{0}", "has no place in it"),
        ("0 0 31 2 *", "never fires"),
        ("0 0 30,31 2 *", "never fires"),
        ("0 0 31 4,6,9,11 *", "never fires"),
    ] {
        let said = refused(cron);
        assert!(said.contains(why), "{cron:?}: {said}");
    }
    let giant = refused(&"1,".repeat(500_000));
    assert!(giant.contains("1000000 bytes exceed the limit of 255") && giant.len() < 300, "{giant}");
    for zone in
        ["", "Mars/Olympus", "europe/berlin", "UTC+1", "/etc/passwd", "../UTC", "EST5EDT,M3.2.0,M11.1.0", "a'b\0"]
    {
        let said = Cron::parse("* * * * *", zone).expect_err(zone).to_string();
        assert!(said.contains("no time zone is named"), "{zone:?}: {said}");
    }
}

#[test]
fn what_fires_once_in_a_while_is_not_refused() {
    assert_eq!(text(LAST_400_YEARS), "4600-01-01T00:00:00Z");
    // In 1 of 4, 28, and of 400 / 28 years.
    for (cron, fire) in [("0 0 29 2 *", "2028-02-29"), ("0 0 * 2 mon#5", "2044-02-29"), ("0 0 29W 2 *", "2028-02-29")] {
        assert_eq!(next(cron, "UTC", "2026-01-01T00:00:00Z", 1), [format!("{fire}T00:00:00Z")], "{cron}");
    }
}

#[test]
fn a_hopeless_expression_is_found_out_quickly() {
    let started = std::time::Instant::now();
    for cron in ["0 0 30 2 *", "59 59 23 31 2,4,6,9,11 *", "* * * 31W feb *"] {
        refused(cron);
    }
    println!("{:?}", started.elapsed());
    assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
}

#[test]
fn nothing_follows_the_end_of_the_calendar() {
    let cron = parse("* * * * * *", "Europe/Berlin");
    assert_eq!(cron.next(second("9999-12-30T22:00:00Z")), None);
    assert_eq!(cron.next(i64::MAX - 1), None);
    let due = Due {
        now_micros: second("9998-01-01T00:00:00Z") * 1_000_000,
        next_fire: Some(second("2026-01-01T00:00:00Z")),
        spread_offset: Duration::ZERO,
        missed: Missed::All,
        missed_limit: 1000,
    };
    assert_eq!(cron.plan(&due), Err(BadCron("no fire follows before the year 5000".into())));
}

#[test]
fn a_time_of_the_day_fires_once_a_day_where_the_clock_jumps() {
    // 02:00 to 03:00 do not exist on 2026-03-29, and exist twice on 2026-10-25.
    let berlin = "Europe/Berlin";
    assert_eq!(
        next("30 2 * * *", berlin, "2026-03-28T00:00:00Z", 3),
        ["2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"],
        "at the first instant after the gap"
    );
    assert_eq!(
        next("0,30 2,14 * * *", berlin, "2026-03-29T00:00:00Z", 3),
        ["2026-03-29T01:00:00Z", "2026-03-29T12:00:00Z", "2026-03-29T12:30:00Z"],
        "two of one gap are one"
    );
    assert_eq!(
        next("30 2 * * *", berlin, "2026-10-24T12:00:00Z", 2),
        ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"],
        "at the first of two"
    );
    assert_eq!(
        next("0 */2 * * *", berlin, "2026-10-24T22:00:00Z", 2),
        ["2026-10-25T00:00:00Z", "2026-10-25T03:00:00Z"]
    );
    assert_eq!(
        next("30 30 2 29 3 *", berlin, "2026-01-01T00:00:00Z", 2),
        ["2026-03-29T01:00:00Z", "2027-03-29T00:30:30Z"]
    );
}

#[test]
fn an_interval_goes_by_what_goes_by() {
    let quarters = ["2026-03-29T00:45:00Z", "2026-03-29T01:00:00Z", "2026-03-29T01:15:00Z"];
    assert_eq!(next("*/15 * * * *", "Europe/Berlin", "2026-03-29T00:30:00Z", 3), quarters);
    assert_eq!(
        next("@hourly", "Europe/Berlin", "2026-10-24T23:00:00Z", 3),
        ["2026-10-25T00:00:00Z", "2026-10-25T01:00:00Z", "2026-10-25T02:00:00Z"]
    );
    assert_eq!(
        next("30 * * * *", "Europe/Berlin", "2026-03-29T00:00:00Z", 2),
        ["2026-03-29T00:30:00Z", "2026-03-29T01:30:00Z"]
    );
}

/// An expression as the oracle knows it.
struct Expression {
    cron: String,
    minutes: [bool; 60],
    hours: [bool; 24],
    /// Of the calendar, in days since 1970; None means each.
    day: Option<i64>,
}

impl Expression {
    fn new(minutes: &str, hours: &str) -> Self {
        let cron = format!("{minutes} {hours} * * *");
        Self { minutes: numbers(minutes), hours: numbers(hours), day: None, cron }
    }

    /// A minute of the clock, each day or on that day of each year.
    fn at(wall: i64, yearly: bool) -> Self {
        let (day, minute, hour) = (wall.div_euclid(DAY), wall / MINUTE % 60, wall / HOUR % 24);
        let each_day = Self::new(&minute.to_string(), &hour.to_string());
        if !yearly {
            return each_day;
        }
        let date = Wall(wall).civil();
        Self { cron: format!("{minute} {hour} {} {} *", date.day(), date.month()), day: Some(day), ..each_day }
    }

    fn matches(&self, wall: i64) -> bool {
        self.minutes[usize::try_from(wall / MINUTE % 60).expect("after 1970")]
            && self.hours[usize::try_from(wall / HOUR % 24).expect("after 1970")]
            && self.day.is_none_or(|day| day == wall.div_euclid(DAY))
    }
}

/// `7`, `0,20`, `3-9`, `*`, `*/5`.
fn numbers<const END: usize>(field: &str) -> [bool; END] {
    let number = |text: &str| text.parse::<usize>().expect("a number");
    let (range, step) = field.split_once('/').map_or((field, 1), |(range, step)| (range, number(step)));
    let named: Vec<usize> = match range.split_once('-') {
        _ if range == "*" => (0..END).step_by(step).collect(),
        Some((first, last)) => (number(first)..=number(last)).step_by(step).collect(),
        None => range.split(',').map(number).collect(),
    };
    std::array::from_fn(|n| named.contains(&n))
}

/// How far around a jump is looked, and how far the oracle knows the clock.
const AROUND: i64 = 4 * HOUR;
const KNOWN: i64 = 8 * HOUR;

/// A jump of a zone's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Jump {
    at: Second,
    before: i64,
    after: i64,
}

/// Found by looking at each noon and halving: not by what the code under test uses.
fn jumps(zone: &TimeZone, from: Second, to: Second) -> Vec<Jump> {
    let offset = |at: Second| i64::from(zone.to_offset(Timestamp::from_second(at).expect("in range")).seconds());
    let mut found = Vec::new();
    let mut last = offset(from);
    for day in (from..to).step_by(usize::try_from(DAY).expect("a day")) {
        let here = offset(day + DAY);
        if here != last {
            let (mut before, mut at) = (day, day + DAY);
            while at - before > 1 {
                let middle = before.midpoint(at);
                *(if offset(middle) == last { &mut before } else { &mut at }) = middle;
            }
            found.push(Jump { at, before: last, after: here });
            last = here;
        }
    }
    found
}

/// What fires around a jump, by looking at the clock in each minute.
fn expected(expression: &Expression, jump: Jump) -> Vec<Second> {
    let clock = |at: Second| at + if at < jump.at { jump.before } else { jump.after };
    let minutes = || (jump.at - KNOWN..=jump.at + KNOWN).step_by(60);
    let mut fires: Vec<Second> = if expression.hours == [true; 24] {
        minutes().filter(|at| expression.matches(clock(*at))).collect()
    } else {
        // When each minute of the clock was first shown; those that never were, when it jumped over them.
        let first = clock(jump.at - KNOWN);
        let place = |wall: i64| usize::try_from((wall - first) / 60).expect("not before the first");
        let mut shown = vec![None; place(clock(jump.at + KNOWN)) + 1];
        minutes().for_each(|at| {
            shown[place(clock(at))].get_or_insert(at);
        });
        let walls = (first..).step_by(60).zip(shown);
        walls.filter(|(wall, _)| expression.matches(*wall)).map(|(_, shown)| shown.unwrap_or(jump.at)).collect()
    };
    fires.retain(|at| (jump.at - AROUND..=jump.at + AROUND).contains(at));
    fires.sort_unstable();
    fires.dedup();
    fires
}

fn check(zone: &str, jump: Jump, expression: &Expression, expected: &[Second]) {
    let cron = parse(&expression.cron, zone);
    let (from, to) = (jump.at - AROUND, jump.at + AROUND);
    let forward: Vec<_> =
        std::iter::successors(cron.next(from - 1), |fire| cron.next(*fire)).take_while(|fire| *fire <= to).collect();
    let told = |fires: &[Second]| fires.iter().map(|fire| text(*fire)).collect::<Vec<_>>();
    if forward != expected {
        panic!("{} in {zone} at {jump:?}: {:?}, not {:?}", expression.cron, told(&forward), told(expected));
    }
    let mut backward: Vec<_> =
        std::iter::successors(cron.last(to), |fire| cron.last(*fire - 1)).take_while(|fire| *fire >= from).collect();
    backward.reverse();
    if backward != expected {
        panic!("{} in {zone} at {jump:?}, backwards: {:?}, not {:?}", expression.cron, told(&backward), told(expected));
    }
}

/// Expressions that a jump can hurt, with what the oracle says of them; the most telling first.
fn around(jump: Jump) -> Vec<(Expression, Vec<Second>)> {
    let (low, high) = (jump.at + jump.before.min(jump.after), jump.at + jump.before.max(jump.after));
    let middle = low.midpoint(high) / 60 * 60;
    let mut all = vec![Expression::at(middle, false), Expression::new("30", "*")];
    for wall in [low - MINUTE, low, middle, high - MINUTE, high] {
        all.extend([Expression::at(wall, false), Expression::at(wall, true)]);
    }
    let hour = (low / HOUR % 24).to_string();
    for (minutes, hours) in [
        ("*/15", "*"),
        ("0", "*"),
        ("7-59/13", "*/1"),
        ("0,20,40", hour.as_str()),
        ("*/10", hour.as_str()),
        ("0", "*/2"),
        ("5", "1-23/2"),
        ("*/12", "0-12"),
    ] {
        all.push(Expression::new(minutes, hours));
    }
    let told = |expression: Expression| {
        let fires = expected(&expression, jump);
        (expression, fires)
    };
    all.into_iter().map(told).collect()
}

#[test]
fn no_fire_is_missed_or_doubled_at_any_jump_of_any_zone_for_ten_years() {
    let (from, to) = (second("2026-01-01T12:00:00Z"), second("2036-12-31T12:00:00Z"));
    let zones: Vec<String> = ZONES.available().map(|name| name.to_string()).collect();
    assert!(zones.len() > 550, "{} zones", zones.len());
    let (mut count, mut kinds) = (0, HashMap::new());
    for zone in &zones {
        let rules = ZONES.get(zone).expect("it is listed");
        for jump in jumps(&rules, from, to) {
            count += 1;
            assert!((jump.after - jump.before).abs() <= 3 * HOUR && jump.at % 60 == 0, "{zone}: {jump:?}");
            // What the oracle says depends on nothing but the jump itself.
            let kind = kinds.entry(jump).or_insert_with(|| {
                let all = around(jump);
                for (expression, expected) in &all {
                    check(zone, jump, expression, expected);
                }
                all
            });
            for (expression, expected) in &kind[..2] {
                check(zone, jump, expression, expected);
            }
        }
    }
    println!("{} zones, {count} jumps of {} kinds", zones.len(), kinds.len());
    assert!(count > 3_000, "{count} jumps");
}

#[test]
fn every_zone_goes_by_its_own_name_alone() {
    for zone in ZONES.available() {
        parse("30 2 * * *", zone.as_str());
    }
}

fn due(next_fire: Option<&str>, now: &str, missed: Missed, missed_limit: usize) -> Due {
    let now_micros = now.parse::<Timestamp>().expect("an instant").as_microsecond();
    Due { now_micros, next_fire: next_fire.map(second), spread_offset: Duration::ZERO, missed, missed_limit }
}

fn plan(cron: &str, due: &Due) -> (Vec<String>, String) {
    let plan = parse(cron, "UTC").plan(due).unwrap_or_else(|error| panic!("{error}"));
    (plan.fires.into_iter().map(text).collect(), text(plan.next_fire))
}

#[test]
fn missed_fires_are_lost_or_one_or_all_up_to_a_limit() {
    let (first, now) = ("2026-01-01T00:00:00Z", "2026-01-01T10:30:00.5Z");
    let next = "2026-01-01T11:00:00Z".to_owned();
    let hour = |hour: i32| format!("2026-01-01T{hour:02}:00:00Z");
    assert_eq!(plan("@hourly", &due(Some(first), now, Missed::Skip, 100)), (vec![], next.clone()));
    assert_eq!(plan("@hourly", &due(Some(first), now, Missed::Once, 100)), (vec![hour(10)], next.clone()));
    let all = (0..=10).map(hour).collect();
    assert_eq!(plan("@hourly", &due(Some(first), now, Missed::All, 100)), (all, next.clone()));
    let last = (8..=10).map(hour).collect();
    assert_eq!(plan("@hourly", &due(Some(first), now, Missed::All, 3)), (last, next));
}

#[test]
fn a_fire_is_missed_when_it_is_a_minute_late() {
    let first = Some("2026-01-01T00:00:00Z");
    for (now, fires) in [("00:00:00Z", 1), ("00:00:59.999999Z", 1), ("00:01:00Z", 0), ("00:01:00.000001Z", 0)] {
        let (fired, next) = plan("@hourly", &due(first, &format!("2026-01-01T{now}"), Missed::Skip, 1));
        assert_eq!((fired.len(), next.as_str()), (fires, "2026-01-01T01:00:00Z"), "{now}");
    }
    // Of several that are due, the last counts.
    let (fired, next) = plan("*/10 * * * * *", &due(first, "2026-01-01T00:05:03Z", Missed::Skip, 1));
    assert_eq!((fired, next.as_str()), (vec!["2026-01-01T00:05:00Z".into()], "2026-01-01T00:05:10Z"));
}

#[test]
fn a_schedule_begins_with_the_first_fire_after_it_was_made() {
    let made = due(None, "2026-01-01T00:00:00Z", Missed::All, 5);
    assert_eq!(plan("@hourly", &made), (vec![], "2026-01-01T01:00:00Z".into()));
    let early = due(Some("2026-01-01T02:00:00Z"), "2026-01-01T01:59:59.999Z", Missed::All, 5);
    assert_eq!(plan("@hourly", &early), (vec![], "2026-01-01T02:00:00Z".into()), "nothing is due yet");
}

#[test]
fn a_spread_schedule_fires_later_with_its_own_time() {
    let spread = |now: &str| Due {
        spread_offset: Duration::from_millis(90_500),
        ..due(Some("2026-01-01T00:00:00Z"), now, Missed::Skip, 1)
    };
    assert_eq!(plan("* * * * *", &spread("2026-01-01T00:01:30.499Z")).0, [""; 0]);
    let on_time = (vec!["2026-01-01T00:00:00Z".to_owned()], "2026-01-01T00:01:00Z".to_owned());
    assert_eq!(plan("* * * * *", &spread("2026-01-01T00:01:30.5Z")), on_time);
}

#[test]
fn what_was_promised_fires_though_the_rules_have_changed_since() {
    // A time that the expression does not name, as after new rules for a zone.
    let promised = due(Some("2026-01-01T00:30:00Z"), "2026-01-01T00:30:01Z", Missed::Once, 1);
    assert_eq!(plan("@hourly", &promised), (vec!["2026-01-01T00:30:00Z".into()], "2026-01-01T01:00:00Z".into()));
}

#[test]
fn years_of_seconds_are_no_work() {
    let started = std::time::Instant::now();
    for cron in ["* * * * * *", "* * 0 1 1 *", "* * * * 1 *", "0 0 29 2 1"] {
        let due = due(Some("2026-01-01T00:00:00Z"), "2060-12-31T23:59:59Z", Missed::All, 1000);
        let plan = parse(cron, "America/New_York").plan(&due).expect("it goes on");
        assert_eq!(plan.fires.len(), if cron.starts_with('*') { 1000 } else { plan.fires.len() }, "{cron}");
        assert!(plan.fires.is_sorted() && plan.next_fire > second("2060-12-31T23:59:59Z"));
    }
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
}
