-- A job that waits for no other job any more is due: at its time, or now. The caller holds its row.
create or replace function leasehold.stop_waiting(p_id bigint) returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
    v_queue text;
begin
    perform pg_current_xact_id();  -- before the clock, as in enqueue
    update leasehold.live_jobs j
       set run_at = greatest(j.due_at, clock_timestamp()), due_at = null, waits_at = null
     where j.id = p_id and j.waits_at = 0 and not exists (select from leasehold.dependencies d where d.job_id = p_id)
    returning j.queue into v_queue;
    if found then
        perform leasehold.wake(v_queue);
    end if;
end $$;
