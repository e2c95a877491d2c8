-- A worker process introduces itself and gets a fresh id, so a restarted one is never mistaken for its predecessor. Rows of
-- workers that were not seen for a day are dropped on the way.
create or replace function leasehold.register_worker(p_host text, p_pid int, p_version text, p_queues text[], p_slots int) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_worker_id bigint;
begin
    delete from leasehold.workers w where w.seen_at < clock_timestamp() - interval '1 day';
    insert into leasehold.workers (host, pid, version, queues, slots) values (p_host, p_pid, p_version, p_queues, p_slots)
    returning worker_id into v_worker_id;
    return v_worker_id;
end $$;
