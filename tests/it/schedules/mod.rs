//! Schedules: each fire is a job once, whoever looks, whatever was down, and nothing that one tenant writes holds up another's.

mod firing;
mod hostile;
mod missed;
mod owners;

use leasehold::maintenance::schedules;
use leasehold::store::{DueSchedule, Fire, Fired, Then};
use leasehold_tests::TestDb;

async fn with_echo() -> TestDb {
    let db = TestDb::new().await;
    db.push_nothing("echo").await;
    db
}

/// As a worker does, until nothing more is due.
async fn look(db: &TestDb) {
    for _ in 0..100 {
        let looked = schedules::look(db.store()).await.unwrap_or_else(|error| panic!("{error:#}"));
        assert!(looked.went_on, "what is due does not go on");
        if !looked.wait.is_zero() {
            return;
        }
    }
    panic!("there is always something to do");
}

/// `set(&db, "'hourly', '@hourly', 'echo'")`, and a worker has looked at it.
async fn set(db: &TestDb, arguments: &str) {
    db.sql(&format!("select leasehold.schedule({arguments})")).await;
    look(db).await;
}

/// Makes a schedule one whose next fire was due so long ago, on the full hour.
async fn overdue(db: &TestDb, name: &str, hours: i32) {
    db.sql(&format!(
        "update leasehold.timetable set next_fire = date_trunc('hour', now()) - interval '{hours} hours',
                look_at = date_trunc('hour', now()) - interval '{hours} hours' where name = '{name}'"
    ))
    .await;
}

async fn jobs(db: &TestDb) -> i64 {
    db.value("select count(*) from leasehold.jobs").await
}

/// The nominal times of the jobs, in hours before this one.
async fn fired_hours_ago(db: &TestDb) -> Vec<i32> {
    db.column(
        "select (extract(epoch from date_trunc('hour', now()) - (convert_from(payload, 'UTF8')::jsonb->>'at')::timestamptz) / 3600)::int
           from leasehold.jobs order by id",
    )
    .await
}

async fn error(db: &TestDb, name: &str) -> Option<String> {
    db.value(&format!("select error from leasehold.schedules where name = '{name}'")).await
}

async fn due(db: &TestDb) -> Vec<DueSchedule> {
    db.store().due_schedules(100).await.unwrap_or_else(|error| panic!("{error:#}")).schedules
}

/// What a worker would do that saw this.
fn fire_of(schedule: &DueSchedule) -> Fire {
    let cron = leasehold::schedule::Cron::parse(&schedule.cron, &schedule.time_zone).expect("a good one");
    let plan = cron.plan(&schedule.due).expect("it goes on");
    let then = Then::GoOn { fires: plan.fires, next_fire: plan.next_fire };
    Fire { id: schedule.id, expected: schedule.due.next_fire, then }
}

async fn fire(db: &TestDb, seen: &[DueSchedule]) -> Vec<Fired> {
    let fires: Vec<_> = seen.iter().map(fire_of).collect();
    db.store().fire_schedules(&fires).await.unwrap_or_else(|error| panic!("{error:#}"))
}
