-- The last step of `leasehold migrate` where there were jobs before live_jobs_by_tenant was: notes in which lanes tenants have jobs,
-- and from then on claims share. Answers whether it did anything. The index is whole by now, so every transaction that enqueued
-- without noting its lane has ended. Goes from tenant to tenant in the index, and not over all their jobs.
create or replace function leasehold.begin_sharing() returns boolean
language plpgsql volatile set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
    v_lane record;
    v_tenant_id int;
    v_priority int;
begin
    if exists (select from leasehold.sharing) then
        return false;
    elsif not coalesce((select i.indisvalid from pg_index i where i.indexrelid = to_regclass('leasehold.live_jobs_by_tenant')), false) then
        raise exception 'index live_jobs_by_tenant is not there, or not whole' using hint = 'run: leasehold migrate';
    end if;
    for v_lane in select distinct l.queue from leasehold.lanes l loop
        v_tenant_id := null; v_priority := null;
        loop
            select j.tenant_id, j.priority into v_tenant_id, v_priority from leasehold.live_jobs j
             where j.queue = v_lane.queue and (v_tenant_id is null or (j.tenant_id, j.priority) > (v_tenant_id, v_priority))
             order by j.tenant_id, j.priority limit 1;
            exit when not found;
            insert into leasehold.tenant_lanes
            select v_tenant_id, v_lane.queue, v_priority
             where not exists (select from leasehold.tenant_lanes a where (a.queue, a.tenant_id, a.priority) = (v_lane.queue, v_tenant_id, v_priority));
        end loop;
    end loop;
    insert into leasehold.sharing values (true) on conflict do nothing;
    return true;
end $$;
