-- What runs wrote, line by line: look one job up by job_id, and order by lease_no, line. Of a run that goes on, what its worker has passed on
-- so far. stream is log, stdout or stderr, or dropped, where the text says how much is missing; level is that of a line of the log. goes_on:
-- the text belongs to the same line as the one before, which was too long.
create or replace view leasehold.job_logs as
select a.job_id, t.name as tenant, a.attempt, a.lease_no, l.line, a.started_at + l.after as at, l.after, l.stream, l.level, l.text, l.goes_on
  from leasehold.attempts a
  join leasehold.tenants t on t.tenant_id = a.tenant_id
  cross join lateral leasehold.log_rows(a.log) l
 where a.log is not null
union all
select j.id, t.name, j.attempt, j.lease_no, l.line, j.started_at + l.after, l.after, l.stream, l.level, l.text, l.goes_on
  from leasehold.live_jobs j
  join leasehold.tenants t on t.tenant_id = j.tenant_id
  join leasehold.live_logs c on c.job_id = j.id and c.lease_no = j.lease_no
  cross join lateral leasehold.log_rows(c.rows) l
 where j.running;
