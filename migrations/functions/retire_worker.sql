-- A worker says goodbye after a drain: all its jobs are settled, its claims closed.
create or replace function leasehold.retire_worker(p_worker_id bigint, p_closed_claim_ids bigint[]) returns void
language sql volatile security definer set search_path = pg_catalog, pg_temp as $$
    delete from leasehold.claims c where c.claim_id = any(p_closed_claim_ids) and c.worker_id = p_worker_id;
    delete from leasehold.sleepers s where s.worker_id = p_worker_id;
    delete from leasehold.workers w where w.worker_id = p_worker_id;
$$;
