-- What each tenant may have and has: the quotas with what is in use, and the ceilings for uploads by a role of the tenant. allowed is null where there
-- is no limit, used where nobody counts it (a quota of queued jobs or bytes counts from when the first was set).
create or replace view leasehold.tenant_quotas as
select t.name as tenant, q.name as quota, leasehold.quota(t.quotas, q.name) as allowed,
       case q.name when 'queued_jobs' then c.jobs when 'queued_bytes' then c.bytes
                   when 'module_bytes' then (select coalesce(sum(octet_length(b.bytes)), 0)::bigint from leasehold.module_bytes b where b.tenant_id = t.tenant_id)
                   when 'module_versions' then (select count(*) from leasehold.module_versions v where v.tenant_id = t.tenant_id) end as used
  from leasehold.tenants t
  left join lateral (
      select coalesce((t.quotas ->> 'queued_jobs')::bigint, 1000000000000000) - sum(f.jobs)::bigint as jobs,
             coalesce((t.quotas ->> 'queued_bytes')::bigint, 1000000000000000) - sum(f.bytes)::bigint as bytes
        from (select s.jobs_free, s.bytes_free from leasehold.quota_slots s where s.tenant_id = t.tenant_id
              union all
              select r.jobs, r.bytes from leasehold.quota_returns r where r.tenant_id = t.tenant_id) f(jobs, bytes)) c on t.counted
 cross join unnest(array['queued_jobs', 'queued_bytes', 'module_bytes', 'module_versions', 'max_fuel', 'max_memory_bytes', 'max_timeout_ms',
                         'max_result_bytes', 'max_log_bytes', 'max_follow_ups', 'max_module_bytes']) q(name);
