-- running -> running, for what a worker's runs left behind since the last call: checkpoints, progress, lines of logs. One statement a
-- worker, about once a second, and only while there is something. Written only where the lease number still matches; a checkpoint of an
-- earlier lease never replaces one of a later. Arrays have an element a run, null where it left nothing of the kind; p_log_drop_from and
-- p_log_drop_to say which chunks of its log go, so that a log that never ends takes bounded room. p_ended are jobs whose runs have ended
-- and left something before: it is dropped, but for the checkpoint of a job that has not ended. Answers the jobs that were written.
create or replace function leasehold.note(
    p_ids bigint[], p_lease_nos int[], p_checkpoints bytea[], p_fractions real[], p_messages text[],
    p_log_rows text[], p_log_chunk_nos int[], p_log_drop_from int[], p_log_drop_to int[], p_ended bigint[]
) returns setof bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
begin
    if array_remove(p_checkpoints, null) = '{}' then
        perform set_config('synchronous_commit', 'off', true);  -- what a crash takes back of the rest is written anew, or of no use
    end if;
    delete from leasehold.notes n
     where n.job_id = any(p_ended) and not exists (select from leasehold.live_jobs j where j.id = n.job_id);
    delete from leasehold.live_logs l
     where l.job_id = any(p_ended) and not exists (select from leasehold.live_jobs j where j.id = l.job_id and j.lease_no = l.lease_no and j.running);
    delete from leasehold.live_logs l
     using unnest(p_ids, p_lease_nos, p_log_drop_from, p_log_drop_to) r(run_id, run_lease_no, drop_from, drop_to)
     where l.job_id = r.run_id and l.lease_no = r.run_lease_no and l.chunk_no >= r.drop_from and l.chunk_no < r.drop_to;
    return query
        with held as (
            select j.tenant_id, j.id, j.lease_no, r.checkpoint, r.fraction, r.message, r.log_rows, r.chunk_no
              from unnest(p_ids, p_lease_nos, p_checkpoints, p_fractions, p_messages, p_log_rows, p_log_chunk_nos)
                   r(run_id, run_lease_no, checkpoint, fraction, message, log_rows, chunk_no)
              join leasehold.live_jobs j on j.id = r.run_id and j.lease_no = r.run_lease_no and j.running
        ), noted as (
            insert into leasehold.notes as n (tenant_id, job_id, lease_no, fraction, message, noted_at, checkpoint)
            select h.tenant_id, h.id, h.lease_no, h.fraction, h.message, clock_timestamp(), h.checkpoint
              from held h where h.checkpoint is not null or h.fraction is not null order by h.id
            on conflict on constraint notes_pkey do update
               set lease_no = excluded.lease_no, noted_at = excluded.noted_at, checkpoint = coalesce(excluded.checkpoint, n.checkpoint),
                   fraction = case when excluded.fraction is null and n.lease_no = excluded.lease_no then n.fraction else excluded.fraction end,
                   message = case when excluded.fraction is null and n.lease_no = excluded.lease_no then n.message else excluded.message end
             where n.lease_no <= excluded.lease_no
        ), logged as (
            -- A chunk that is there already was written by a call whose answer was lost.
            insert into leasehold.live_logs (tenant_id, job_id, lease_no, chunk_no, rows)
            select h.tenant_id, h.id, h.lease_no, h.chunk_no, h.log_rows from held h where h.log_rows is not null
            on conflict on constraint live_logs_pkey do update set rows = excluded.rows
        )
        select h.id from held h;
end $$;
