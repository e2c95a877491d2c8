-- All schedules. next_fire is when it fires next, its place in the spread included; null while a worker has yet to compute it,
-- which takes seconds, or cannot (error). held: its module is switched off, and nothing fires until it is on again. last_fire
-- is the nominal time of the last fire, last_fired_at the clock then. error is why the last look failed.
create or replace view leasehold.schedules as
select t.name as tenant, s.name, s.cron, s.time_zone, s.module, s.paused,
       leasehold.schedule_is_held(s.tenant_id, m.module_id) as held,
       s.next_fire + s.spread_offset_ms * interval '1 millisecond' as next_fire, s.last_fire, s.last_fired_at, s.last_job_id, s.error, s.error_at,
       s.missed, s.missed_limit, s.spread_ms * interval '1 millisecond' as spread, s.spread_offset_ms * interval '1 millisecond' as spread_offset,
       s.time_key, s.queue, s.priority, s.max_attempts, s.timeout, s.backoff, s.version, s.payload, s.created_at, s.updated_at
  from leasehold.timetable s
  join leasehold.tenants t on t.tenant_id = s.tenant_id
  left join leasehold.modules m on m.tenant_id = s.tenant_id and m.name = s.module;
