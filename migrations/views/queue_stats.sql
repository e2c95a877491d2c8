-- How many jobs of each tenant and queue are in each state. Finished states count the last 24 hours. oldest_due_age is how
-- long the job that waits longest has been due: growing means that workers are down or too few.
create or replace view leasehold.queue_stats as
select t.name as tenant, s.queue, s.state, s.count, s.oldest_due_age
  from (select j.tenant_id, j.queue, case when j.running then 'running' else 'queued' end::leasehold.job_state as state, count(*) as count,
               now() - min(j.run_at) filter (where not j.running and j.run_at <= now()) as oldest_due_age
          from leasehold.live_jobs j group by 1, 2, 3
        union all
        select h.tenant_id, h.queue, h.state, count(*), null
          from leasehold.history h where h.finished_at > now() - interval '24 hours' group by 1, 2, 3) s
  join leasehold.tenants t on t.tenant_id = s.tenant_id;
