use super::*;
use crate::store::{DbInstant, TenantLane};

fn ready(tenant: i32, queue: &str, priority: i32, since: i64) -> ReadyLane {
    let lane = TenantLane { tenant: TenantId(tenant), queue: queue.into(), priority };
    ReadyLane { lane, since: DbInstant::from_unix_second(since) }
}

/// (tenant, priority, jobs) of each turn; the queue is "default".
fn turns(inner: &mut Inner, lanes: &[ReadyLane], room: usize) -> Vec<(i32, i32, i32)> {
    turns_of(inner, lanes, (&["default".to_owned()], false), room).into_iter().map(|t| (t.0, t.2, t.3)).collect()
}

fn turns_of(
    inner: &mut Inner,
    lanes: &[ReadyLane],
    queues: (&[String], bool),
    room: usize,
) -> Vec<(i32, String, i32, i32)> {
    let turns = inner.turns(lanes, queues, room, Instant::now());
    let told = |turn: Turn| (turn.lane.tenant.0, turn.lane.queue.to_string(), turn.lane.priority, turn.count);
    turns.into_iter().map(told).collect()
}

fn used(inner: &mut Inner, tenant: i32, seconds: f64) {
    inner.end(TenantId(tenant), seconds, Instant::now());
}

/// Runs jobs of given costs for so many rounds with `slots` at once, and answers what each tenant used.
fn simulate(weights: &[(i32, i32)], costs: &[(i32, f64)], slots: usize, until: f64) -> HashMap<i32, f64> {
    let weights = weights.iter().map(|(tenant, weight)| (TenantId(*tenant), *weight)).collect();
    let mut inner = Inner { weights, ..Inner::default() };
    let lanes: Vec<_> = costs.iter().map(|(tenant, _)| ready(*tenant, "default", 0, 0)).collect();
    let (start, mut running, mut used) = (Instant::now(), Vec::<(f64, i32, f64)>::new(), HashMap::new());
    let mut clock = 0.0;
    while clock < until {
        let now = start + Duration::from_secs_f64(clock);
        for turn in inner.turns(&lanes, (&["default".to_owned()], false), slots - running.len(), now) {
            let tenant = turn.lane.tenant.0;
            let cost = costs.iter().find(|(of, _)| *of == tenant).expect("one of them").1;
            for _ in 0..turn.count {
                inner.account(TenantId(tenant), now).in_flight += 1;
                running.push((clock + cost, tenant, cost));
            }
        }
        running.sort_by(|a, b| b.0.total_cmp(&a.0));
        let (end, tenant, cost) = running.pop().expect("the slots are full");
        clock = end;
        *used.entry(tenant).or_insert(0.0) += cost;
        inner.end(TenantId(tenant), cost, start + Duration::from_secs_f64(clock));
    }
    used
}

#[test]
fn equals_take_turns_and_who_waited_longest_is_first() {
    let mut inner = Inner::default();
    let lanes = [ready(1, "default", 0, 20), ready(2, "default", 0, 10), ready(3, "default", 0, 30)];
    assert_eq!(turns(&mut inner, &lanes, 5), [(2, 0, 2), (1, 0, 2), (3, 0, 1)]);
}

#[test]
fn a_tenant_alone_gets_everything() {
    let mut inner = Inner::default();
    used(&mut inner, 1, 1000.0);
    assert_eq!(turns(&mut inner, &[ready(1, "default", 0, 0)], 8), [(1, 0, 8)]);
}

#[test]
fn priority_is_within_a_tenant_only() {
    let mut inner = Inner::default();
    let lanes = [ready(1, "default", 100, 5), ready(1, "default", 0, 0), ready(2, "default", -100, 9)];
    // The lane of less priority may fill what the others leave.
    assert_eq!(turns(&mut inner, &lanes, 4), [(1, 100, 2), (2, -100, 2), (1, 0, 0)]);
}

#[test]
fn who_owes_more_waits_until_the_others_do() {
    let mut inner = Inner::default();
    let lanes = [ready(1, "default", 0, 0), ready(2, "default", 0, 9)];
    turns(&mut inner, &lanes, 1);
    used(&mut inner, 1, 0.05);
    used(&mut inner, 2, 0.01);
    // 1 owes 50 ms and its next is expected to use 50 more; 2 owes 10 and 10 a job: ten fit below 100 ms, of which nine are less.
    assert_eq!(turns(&mut inner, &lanes, 10), [(2, 0, 9), (1, 0, 1)]);
}

#[test]
fn nobody_saves_up_while_nothing_is_due() {
    let mut inner = Inner::default();
    let (busy, back) = (ready(1, "default", 0, 0), ready(2, "default", 0, 9));
    turns(&mut inner, std::slice::from_ref(&busy), 1);
    used(&mut inner, 1, 5.0);
    used(&mut inner, 2, 0.01);
    inner.accounts.get_mut(&TenantId(1)).expect("it used something").expected = Some(0.01);
    let lanes = [busy, back];
    // Ten jobs of 10 ms ahead, not 500.
    let given = turns(&mut inner, &lanes, 100);
    assert_eq!(given[0].0, 2);
    assert!((54..=56).contains(&given[0].2), "{given:?}");
}

#[test]
fn with_queues_by_weight_turns_are_given_in_the_drawn_one() {
    let mut inner = Inner::default();
    let lanes = [ready(1, "a", 100, 0), ready(1, "b", 0, 0), ready(2, "b", 0, 0)];
    let queues = ["b".to_owned(), "a".to_owned()];
    let given = turns_of(&mut inner, &lanes, (&queues, true), 2);
    assert_eq!(given[..2], [(1, "b".into(), 0, 1), (2, "b".into(), 0, 1)]);
    assert_eq!(given[2], (1, "a".into(), 100, 0));
}

#[test]
fn cpu_time_is_shared_by_weight_whatever_a_job_costs() {
    let used = simulate(&[], &[(1, 0.005), (2, 0.5)], 4, 60.0);
    let ratio = used[&1] / used[&2];
    assert!((0.95..1.05).contains(&ratio), "5 ms against 500 ms: {ratio}");
    let used = simulate(&[(1, 300)], &[(1, 0.01), (2, 0.01)], 8, 30.0);
    let ratio = used[&1] / used[&2];
    assert!((2.9..3.1).contains(&ratio), "3:1: {ratio}");
}
