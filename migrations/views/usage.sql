-- What runs used, by tenant, module and day (UTC) of their settlement. Each run is here once, in the transaction that settled it; one that ended with
-- its worker (crashed) counts as a run, and what it used is not known.
create or replace view leasehold.usage as
select t.name as tenant, coalesce(m.name, m.removed_name) as module, u.day, sum(u.runs)::bigint as runs, sum(u.failed)::bigint as failed,
       sum(u.crashed)::bigint as crashed, (sum(u.cpu_us) / 1000)::float8 as cpu_ms, sum(u.fuel) as fuel, sum(u.memory_byte_seconds) as memory_byte_seconds,
       sum(u.bytes_in)::bigint as bytes_in, sum(u.bytes_out)::bigint as bytes_out
  from (select * from leasehold.usage_days union all select * from leasehold.usage_log) u
  join leasehold.tenants t on t.tenant_id = u.tenant_id
  join leasehold.modules m on m.module_id = u.module_id
 group by 1, 2, 3;
