-- Changes nothing. As find_stragglers, for a claimer of whom tenants wait for their turns: their jobs lie below the lanes' bounds, so each
-- tenant's lane is looked at up to its own place (p_ready_*), or up to the lane's bound where it is not one of those.
create or replace function leasehold.find_tenant_stragglers(
    p_lane_queues text[], p_lane_priorities int[], p_lane_run_ats timestamptz[], p_lane_ids bigint[],
    p_ready_tenants int[], p_ready_queues text[], p_ready_priorities int[], p_ready_run_ats timestamptz[], p_ready_ids bigint[]
) returns table (queue text, priority int, run_at timestamptz, id bigint, tenant_id int)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
begin
    return query
        select a.queue, a.priority::int, s.run_at, s.id - 1, a.tenant_id
          from unnest(p_lane_queues, p_lane_priorities::smallint[], p_lane_run_ats, p_lane_ids) l(queue, priority, run_at, id)
          join leasehold.tenant_lanes a on a.queue = l.queue and a.priority = l.priority
          left join unnest(p_ready_tenants, p_ready_queues, p_ready_priorities::smallint[], p_ready_run_ats, p_ready_ids) r(tenant_id, queue, priority, run_at, id)
            on r.tenant_id = a.tenant_id and r.queue = a.queue and r.priority = a.priority
         cross join lateral (
            select j.run_at, j.id from leasehold.live_jobs j
             where j.queue = a.queue and (j.tenant_id, j.priority) >= (a.tenant_id, a.priority)
               and (j.tenant_id, j.priority, j.run_at, j.id) <= (a.tenant_id, a.priority, coalesce(r.run_at, l.run_at), coalesce(r.id, l.id))
               and not j.running
             order by j.tenant_id, j.priority, j.run_at, j.id limit 1) s;
end $$;
