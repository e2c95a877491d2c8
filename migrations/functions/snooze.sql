-- running -> queued, for a batch of runs whose guest asked to be run again later. The attempt is not counted.
create or replace function leasehold.snooze(
    p_worker_id bigint, p_ids bigint[], p_lease_nos int[], p_delays_ms bigint[],
    p_fuel bigint[], p_wall_us bigint[], p_cpu_us bigint[], p_memory_peak_bytes bigint[], p_logs text[], p_log_dropped_bytes bigint[]
) returns setof bigint
language sql volatile security definer set search_path = pg_catalog, pg_temp as $$
    select leasehold.give_back(p_worker_id, 'snooze', p_ids, p_lease_nos, p_delays_ms, array_fill(false, array[cardinality(p_ids)]),
                               array_fill(null::text, array[cardinality(p_ids)]), array_fill(null::text, array[cardinality(p_ids)]),
                               p_fuel, p_wall_us, p_cpu_us, p_memory_peak_bytes, p_logs, p_log_dropped_bytes)
$$;
