-- A worker wants a NOTIFY (p_ttl_ms > 0: for so long, to be renewed) or no longer (0), for each of its queues. It claims once
-- more after asking, since a job may have been committed in between.
create or replace function leasehold.sleep(p_worker_id bigint, p_queues text[], p_ttl_ms int) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform set_config('synchronous_commit', 'off', true);
    if p_ttl_ms = 0 then
        delete from leasehold.sleepers s where s.worker_id = p_worker_id;
    else
        insert into leasehold.sleepers (queue, worker_id, until)
        select q, p_worker_id, clock_timestamp() + p_ttl_ms * interval '1 millisecond' from unnest(p_queues) q
            on conflict (queue, worker_id) do update set until = excluded.until;
    end if;
end $$;
