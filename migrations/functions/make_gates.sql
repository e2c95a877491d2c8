-- Makes the gates of keys that these jobs are the first of, and those of modules that are switched off. Part of claim. Answers
-- whether it made any. In one order, since two claims that make the same gates wait for each other.
create or replace function leasehold.make_gates(p_ids bigint[]) returns boolean
language plpgsql volatile set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
begin
    insert into leasehold.gates (tenant_id, kind, module_id, name, max)
    select distinct n.* from (
        select j.tenant_id, 'key', 0, j.options ->> 'concurrency_key', 1
          from leasehold.live_jobs j where j.id = any(p_ids) and j.options ? 'concurrency_key'
        union all
        select j.tenant_id, 'off', j.module_id, '', null
          from leasehold.live_jobs j join leasehold.modules m on m.module_id = j.module_id and m.active_version is null
         where j.id = any(p_ids)) n(tenant_id, kind, module_id, name, max)
     where not exists (select from leasehold.gates g where (g.tenant_id, g.kind, g.module_id, g.name) = (n.tenant_id, n.kind, n.module_id, n.name))
     order by 1, 2, 3, 4
        on conflict on constraint gates_one_of_a_kind do nothing;
    return found;
end $$;
