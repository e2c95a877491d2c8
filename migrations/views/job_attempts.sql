-- The runs of a job that left something to tell: all that did not end well, and those with output. log names its gap where something was dropped.
create or replace view leasehold.job_attempts as
select a.job_id, t.name as tenant, a.attempt, a.lease_no, a.outcome, a.version, a.worker_id, a.started_at, a.finished_at, a.failure_kind,
       a.message, a.backtrace, leasehold.log_text(a.log) as log, a.log_dropped_bytes,
       case when a.wall_us is not null then
           jsonb_build_object('fuel', a.fuel, 'wall_ms', round(a.wall_us / 1000.0, 3), 'cpu_ms', round(a.cpu_us / 1000.0, 3),
                              'memory_peak_bytes', a.memory_peak_bytes, 'result_bytes', coalesce(a.result_bytes, 0)) end as usage
  from leasehold.attempts a join leasehold.tenants t on t.tenant_id = a.tenant_id;
