-- What the end of a batch of jobs means to others: the places that their runs took (one element a place, or null) are free, those that wait
-- for them go on or are cancelled, and whoever asked to be told (p_told, or null) is. The last step of each function that moves jobs to
-- history, in the same transaction; of the three calls most batches need none. Internal: not granted to anyone.
create or replace function leasehold.conclude(p_ids bigint[], p_state leasehold.job_state, p_places bigint[], p_told bigint[]) returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
begin
    if p_places is not null then
        perform leasehold.leave_gates(p_places);
    end if;
    if exists (select from leasehold.dependencies d where d.after_id = any(p_ids)) then
        perform leasehold.after_end(p_ids, p_state);
    end if;
    if p_told is not null then
        perform leasehold.tell(p_told, p_state);
    end if;
end $$;
