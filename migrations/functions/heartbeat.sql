-- running -> running. One statement a worker for all that it holds: extends its claims, says that it is alive, forgets the
-- claims whose jobs are all settled, and answers which of its jobs it no longer owns (lost) and which somebody asked to
-- cancel. A claim that was reaped is gone, so it can't be extended.
create or replace function leasehold.heartbeat(
    p_worker_id bigint, p_claim_ids bigint[], p_closed_claim_ids bigint[], p_lease_ms int, p_job_ids bigint[], p_lease_nos int[],
    out lost bigint[], out cancel bigint[]
)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set jit = off as $$
begin
    perform set_config('synchronous_commit', 'off', true);  -- a lost heartbeat is an older lease, nothing worse
    update leasehold.workers w set seen_at = clock_timestamp() where w.worker_id = p_worker_id;
    delete from leasehold.claims c where c.claim_id = any(p_closed_claim_ids) and c.worker_id = p_worker_id;
    update leasehold.claims c set locked_until = clock_timestamp() + p_lease_ms * interval '1 millisecond'
     where c.claim_id = any(p_claim_ids) and c.worker_id = p_worker_id;
    select array_agg(h.id) filter (where j.id is null), array_agg(h.id) filter (where j.cancel_requested) into lost, cancel
      from unnest(p_job_ids, p_lease_nos) h(id, lease_no)
      left join leasehold.live_jobs j on j.id = h.id and j.lease_no = h.lease_no and j.running
       and exists (select from leasehold.claims c where c.claim_id = j.claim_id);
    lost := coalesce(lost, '{}');
    cancel := coalesce(cancel, '{}');
end $$;
