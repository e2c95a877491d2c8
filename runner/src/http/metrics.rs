//! Metrics as OpenMetrics text. Names and labels are part of what users rely on: the README lists them.

use std::fmt;
use std::sync::atomic::Ordering::Relaxed;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::store::Waiting;
use crate::worker::Counters;

pub fn of_worker(counters: &Counters) -> Result<String, fmt::Error> {
    let now = |counter: &std::sync::atomic::AtomicU64| counter.load(Relaxed);
    write(vec![
        counter("claims", "Claims that found jobs.", now(&counters.claims)),
        counter(
            "leases_lost",
            "Runs whose lease was lost, and of which nothing was written.",
            now(&counters.leases_lost),
        ),
        Metric {
            name: "runs_settled",
            help: "Runs that were settled, by how.",
            values: Values::Counters(
                counters.ends().map(|(end, count)| (vec![("settlement", end.into())], count)).collect(),
            ),
        },
        Metric {
            name: "runs_failed",
            help: "Runs that failed, by the kind of failure.",
            values: Values::Counters(
                counters.failures().map(|(kind, count)| (vec![("kind", kind.into())], count)).collect(),
            ),
        },
        Metric {
            name: "run_cpu_seconds",
            help: "Processor time that settled runs took.",
            values: Values::Seconds(now(&counters.cpu_us) as f64 / 1e6),
        },
        gauge("slots", "How many jobs may run at once.", now(&counters.slots) as f64),
        gauge("slots_running", "How many do.", now(&counters.running) as f64),
        gauge(
            "notify_heard",
            "1 while a NOTIFY reaches this worker, 0 while it has to poll.",
            f64::from(u8::from(counters.hears.load(Relaxed))),
        ),
    ])
}

pub fn of_queues(waiting: &[Waiting]) -> Result<String, fmt::Error> {
    let labels = |w: &Waiting| vec![("queue", w.queue.clone()), ("reason", w.code.clone())];
    write(vec![
        Metric {
            name: "jobs",
            help: "Live jobs, by why they are not running, in the words of leasehold.explain.",
            values: Values::Gauges(waiting.iter().map(|w| (labels(w), w.jobs as f64)).collect()),
        },
        Metric {
            name: "job_age_seconds",
            help: "For how long the one of them has been due that has been so longest.",
            values: Values::Gauges(waiting.iter().filter_map(|w| Some((labels(w), w.oldest_seconds?))).collect()),
        },
    ])
}

type Labels = Vec<(&'static str, String)>;

#[derive(Debug)]
struct Metric {
    name: &'static str,
    help: &'static str,
    values: Values,
}

#[derive(Debug)]
enum Values {
    Counters(Vec<(Labels, u64)>),
    Seconds(f64),
    Gauges(Vec<(Labels, f64)>),
}

fn counter(name: &'static str, help: &'static str, value: u64) -> Metric {
    Metric { name, help, values: Values::Counters(vec![(Vec::new(), value)]) }
}

fn gauge(name: &'static str, help: &'static str, value: f64) -> Metric {
    Metric { name, help, values: Values::Gauges(vec![(Vec::new(), value)]) }
}

fn write(metrics: Vec<Metric>) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("leasehold");
    for metric in metrics {
        registry.register_collector(Box::new(metric));
    }
    let mut out = String::new();
    text::encode(&mut out, &registry)?;
    Ok(out)
}

impl Collector for Metric {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let kind = match self.values {
            Values::Counters(_) | Values::Seconds(_) => MetricType::Counter,
            Values::Gauges(_) => MetricType::Gauge,
        };
        let mut family = encoder.encode_descriptor(self.name, self.help, None, kind)?;
        match &self.values {
            Values::Counters(values) => {
                each(values, |labels, value| ConstCounter::new(value).encode(family.encode_family(labels)?))
            }
            Values::Seconds(value) => ConstCounter::new(*value).encode(family),
            Values::Gauges(values) => {
                each(values, |labels, value| ConstGauge::new(value).encode(family.encode_family(labels)?))
            }
        }
    }
}

fn each<T: Copy>(
    values: &[(Labels, T)],
    mut encode: impl FnMut(&Labels, T) -> Result<(), fmt::Error>,
) -> Result<(), fmt::Error> {
    values.iter().try_for_each(|(labels, value)| encode(labels, *value))
}
