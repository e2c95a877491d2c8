-- What the end of jobs means to those that wait for them. Part of each function that moves jobs to history, in the same
-- transaction. p_state: done, dead or cancelled, of all of them.
--
-- What would take long is left to sweep, so that no settlement does: more than a thousand jobs, and those whose rows somebody holds.
create or replace function leasehold.after_end(p_ids bigint[], p_state leasehold.job_state) returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
    v_ids bigint[] := p_ids;
    v_state leasehold.job_state := p_state;
    v_cancelled bigint[];
    v_job record;
    v_left int := 1000;
begin
    -- Level by level: what is cancelled for the end of one job may have others that wait for it.
    while exists (select from leasehold.dependencies d where d.after_id = any(v_ids)) and v_left > 0 loop
        v_cancelled := '{}';
        -- Row by row: each takes its lock first and counts what is left after, or two that end at once would both see the other's.
        for v_job in
            select j.id, j.options ->> 'on_dead' as on_dead from leasehold.live_jobs j
             where j.id in (select d.job_id from leasehold.dependencies d where d.after_id = any(v_ids)) and j.waits_at = 0
             order by j.id limit v_left for update skip locked
        loop
            v_left := v_left - 1;
            if v_state <> 'done' and coalesce(v_job.on_dead, 'cancel') = 'cancel' then
                perform leasehold.move_to_cancelled(v_job.id, null, null, null, null, null);
                v_cancelled := v_cancelled || v_job.id;
            elsif v_state = 'done' or v_job.on_dead = 'run' then
                delete from leasehold.dependencies d where d.job_id = v_job.id and d.after_id = any(v_ids);
                perform leasehold.stop_waiting(v_job.id);
            end if;  -- else it waits until that job was redriven and is done
        end loop;
        v_ids := v_cancelled;
        v_state := 'cancelled';
    end loop;
end $$;
