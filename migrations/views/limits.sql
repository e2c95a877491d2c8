-- What is set up to keep jobs waiting: pauses of queues, tenants and modules, caps and rates.
create or replace view leasehold.limits as
select g.kind, t.name as tenant, m.name as module, nullif(g.name, '') as key, null::text as queue, g.wanted as max_running,
       case when g.kind = 'cap' then g.running end as running, g.per_second, g.burst, g.paused_at, g.reason
  from leasehold.gates g join leasehold.tenants t on t.tenant_id = g.tenant_id left join leasehold.modules m on m.module_id = g.module_id
 where (g.kind = 'pause' and g.paused_at is not null) or (g.kind = 'cap' and g.wanted < 2147483647) or (g.kind = 'rate' and g.per_second < 1e9)
union all
select 'pause', null, null, null, p.queue, null, null, null, null, p.paused_at, coalesce(p.reason, 'paused by ' || p.paused_by) from leasehold.paused_queues p;
