-- Changes nothing. Looks below a claimer's bounds for jobs that wait there: of a claim that was rolled back, or after the
-- server's clock went back. Answers the lanes that have one, with the place just
-- before it; the claimer then lowers its bound. Walks over whatever an open snapshot keeps in the index, so a worker calls
-- it seldom, and the more seldom the longer it takes.
create or replace function leasehold.find_stragglers(
    p_lane_queues text[], p_lane_priorities int[], p_lane_run_ats timestamptz[], p_lane_ids bigint[]
) returns table (queue text, priority int, run_at timestamptz, id bigint)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
    v_lane record;
begin
    for v_lane in select * from unnest(p_lane_queues, p_lane_priorities::smallint[], p_lane_run_ats, p_lane_ids) b(queue, priority, run_at, id) loop
        select j.queue, j.priority, j.run_at, j.id - 1 into queue, priority, run_at, id from leasehold.live_jobs j
         where j.queue = v_lane.queue and j.priority = v_lane.priority and (j.run_at, j.id) <= (v_lane.run_at, v_lane.id)
           and not j.running
         order by j.run_at, j.id limit 1;
        if found then
            return next;
        end if;
    end loop;
end $$;
