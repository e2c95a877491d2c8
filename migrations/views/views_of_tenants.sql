-- The my_ views show what belongs to the tenants that whoever looks may act for, and to nobody else; otherwise they are the views of the names without
-- my_. Each is a barrier, and its columns are sealed: no condition of the reader's own is tried on a stranger's row, and the planner does not ask
-- one about the statistics of strangers' rows. Not so ids and when a job finished, so that a job is found by them: that an id is taken, and how
-- many jobs there are in all, is no secret.
create or replace view leasehold.my_jobs with (security_barrier) as
select j.id, j.tenant, leasehold.sealed(j.module) as module, leasehold.sealed(j.version) as version, leasehold.sealed(j.queue) as queue,
       leasehold.sealed(j.state) as state, leasehold.sealed(j.priority) as priority, leasehold.sealed(j.attempt) as attempt,
       leasehold.sealed(j.max_attempts) as max_attempts, leasehold.sealed(j.run_at) as run_at, leasehold.sealed(j.enqueued_at) as enqueued_at,
       leasehold.sealed(j.started_at) as started_at, j.finished_at, leasehold.sealed(j.result) as result, leasehold.sealed(j.error) as error,
       leasehold.sealed(j.usage) as usage, leasehold.sealed(j.failure_kind) as failure_kind, leasehold.sealed(j.result_bytes) as result_bytes,
       leasehold.sealed(j.payload) as payload, leasehold.sealed(j.lease_no) as lease_no, leasehold.sealed(j.crash_count) as crash_count,
       leasehold.sealed(j.cancel_requested) as cancel_requested, leasehold.sealed(j.worker_id) as worker_id,
       leasehold.sealed(j.locked_until) as locked_until, leasehold.sealed(j.expires_at) as expires_at, leasehold.sealed(j.options) as options,
       leasehold.sealed(j.waiting) as waiting, leasehold.sealed(j.progress) as progress, leasehold.sealed(j.progress_message) as progress_message,
       leasehold.sealed(j.progress_at) as progress_at
  from leasehold.jobs j where j.tenant = any((select leasehold.my_tenant_names())::text[]);

create or replace view leasehold.my_job_attempts with (security_barrier) as
select a.job_id, a.tenant, leasehold.sealed(a.attempt) as attempt, leasehold.sealed(a.lease_no) as lease_no, leasehold.sealed(a.outcome) as outcome,
       leasehold.sealed(a.version) as version, leasehold.sealed(a.worker_id) as worker_id, leasehold.sealed(a.started_at) as started_at, a.finished_at,
       leasehold.sealed(a.failure_kind) as failure_kind, leasehold.sealed(a.message) as message, leasehold.sealed(a.backtrace) as backtrace,
       leasehold.sealed(a.log) as log, leasehold.sealed(a.log_dropped_bytes) as log_dropped_bytes, leasehold.sealed(a.usage) as usage
  from leasehold.job_attempts a where a.tenant = any((select leasehold.my_tenant_names())::text[]);

create or replace view leasehold.my_job_logs with (security_barrier) as
select l.job_id, l.tenant, leasehold.sealed(l.attempt) as attempt, leasehold.sealed(l.lease_no) as lease_no, leasehold.sealed(l.line) as line,
       leasehold.sealed(l.at) as at, leasehold.sealed(l.after) as after, leasehold.sealed(l.stream) as stream, leasehold.sealed(l.level) as level,
       leasehold.sealed(l.text) as text, leasehold.sealed(l.goes_on) as goes_on
  from leasehold.job_logs l where l.tenant = any((select leasehold.my_tenant_names())::text[]);

create or replace view leasehold.my_schedules with (security_barrier) as
select s.tenant, leasehold.sealed(s.name) as name, leasehold.sealed(s.cron) as cron, leasehold.sealed(s.time_zone) as time_zone,
       leasehold.sealed(s.module) as module, leasehold.sealed(s.paused) as paused, leasehold.sealed(s.held) as held,
       leasehold.sealed(s.next_fire) as next_fire, leasehold.sealed(s.last_fire) as last_fire, leasehold.sealed(s.last_fired_at) as last_fired_at,
       leasehold.sealed(s.last_job_id) as last_job_id, leasehold.sealed(s.error) as error, leasehold.sealed(s.error_at) as error_at,
       leasehold.sealed(s.missed) as missed, leasehold.sealed(s.missed_limit) as missed_limit, leasehold.sealed(s.spread) as spread,
       leasehold.sealed(s.spread_offset) as spread_offset, leasehold.sealed(s.time_key) as time_key, leasehold.sealed(s.queue) as queue,
       leasehold.sealed(s.priority) as priority, leasehold.sealed(s.max_attempts) as max_attempts, leasehold.sealed(s.timeout) as timeout,
       leasehold.sealed(s.backoff) as backoff, leasehold.sealed(s.version) as version, leasehold.sealed(s.payload) as payload,
       leasehold.sealed(s.created_at) as created_at, leasehold.sealed(s.updated_at) as updated_at
  from leasehold.schedules s where s.tenant = any((select leasehold.my_tenant_names())::text[]);

create or replace view leasehold.my_queue_stats with (security_barrier) as
select s.tenant, leasehold.sealed(s.queue) as queue, leasehold.sealed(s.state) as state, leasehold.sealed(s.count) as count,
       leasehold.sealed(s.oldest_due_age) as oldest_due_age
  from leasehold.queue_stats s where s.tenant = any((select leasehold.my_tenant_names())::text[]);

create or replace view leasehold.my_limits with (security_barrier) as
select leasehold.sealed(l.kind) as kind, l.tenant, leasehold.sealed(l.module) as module, leasehold.sealed(l.key) as key,
       leasehold.sealed(l.queue) as queue, leasehold.sealed(l.max_running) as max_running, leasehold.sealed(l.running) as running,
       leasehold.sealed(l.per_second) as per_second, leasehold.sealed(l.burst) as burst, leasehold.sealed(l.paused_at) as paused_at,
       leasehold.sealed(l.reason) as reason
  from leasehold.limits l where l.tenant = any((select leasehold.my_tenant_names())::text[]);

create or replace view leasehold.my_quotas with (security_barrier) as
select q.tenant, leasehold.sealed(q.quota) as quota, leasehold.sealed(q.allowed) as allowed, leasehold.sealed(q.used) as used
  from leasehold.tenant_quotas q where q.tenant = any((select leasehold.my_tenant_names())::text[]);

create or replace view leasehold.my_usage with (security_barrier) as
select u.tenant, leasehold.sealed(u.module) as module, leasehold.sealed(u.day) as day, leasehold.sealed(u.runs) as runs, leasehold.sealed(u.failed) as failed,
       leasehold.sealed(u.crashed) as crashed, leasehold.sealed(u.cpu_ms) as cpu_ms, leasehold.sealed(u.fuel) as fuel,
       leasehold.sealed(u.memory_byte_seconds) as memory_byte_seconds, leasehold.sealed(u.bytes_in) as bytes_in, leasehold.sealed(u.bytes_out) as bytes_out
  from leasehold.usage u where u.tenant = any((select leasehold.my_tenant_names())::text[]);

-- Without the bytes.
create or replace view leasehold.my_modules with (security_barrier) as
select t.name as tenant, leasehold.sealed(m.name) as name, leasehold.sealed(v.version) as version,
       leasehold.sealed(v.version is not distinct from m.active_version) as active, leasehold.sealed(v.kind::text) as kind,
       leasehold.sealed(encode(v.digest, 'hex')) as digest, leasehold.sealed(octet_length(b.bytes)) as size_bytes, leasehold.sealed(v.fuel) as fuel,
       leasehold.sealed(v.memory_bytes) as memory_bytes, leasehold.sealed(v.timeout_ms) as timeout_ms,
       leasehold.sealed(v.result_bytes) as result_bytes, leasehold.sealed(v.log_bytes) as log_bytes, leasehold.sealed(v.follow_ups) as follow_ups,
       leasehold.sealed(v.on_failure) as on_failure, leasehold.sealed(v.retry) as retry, leasehold.sealed(v.imports) as imports,
       leasehold.sealed(v.created_at) as created_at
  from leasehold.modules m
  join leasehold.tenants t on t.tenant_id = m.tenant_id
  join leasehold.module_versions v on v.module_id = m.module_id
  join leasehold.module_bytes b on b.tenant_id = v.tenant_id and b.digest = v.digest
 where m.name is not null and t.name = any((select leasehold.my_tenant_names())::text[]);
