-- Changes nothing. Of a batch that could not be settled because somebody holds a lock: answers the jobs that nobody holds, so
-- that they need not wait for the others. A producer holds a running job's row from its cancel until its transaction ends,
-- which may be never; the settling functions wait for lock_timeout only. A job that is gone is answered too: whoever settles
-- it then hears that its lease is lost.
create or replace function leasehold.free_of_locks(p_ids bigint[]) returns setof bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off as $$
begin
    return query select j.id from leasehold.live_jobs j where j.id = any(p_ids) for update skip locked;
    return query select i from unnest(p_ids) i where not exists (select from leasehold.live_jobs j where j.id = i);
end $$;
