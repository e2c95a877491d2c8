-- running -> queued, for a batch of runs that the worker itself ended: a drain, or a fault of its own (kind host), which
-- counts as a crash. The attempt is not counted. A job that was asked to cancel is cancelled instead, one over the crash
-- limit buried. Answers the ids that were settled, each with the state it came to.
create or replace function leasehold.release(
    p_worker_id bigint, p_ids bigint[], p_lease_nos int[], p_delays_ms bigint[], p_failure_kinds text[], p_messages text[], p_crash_limit int,
    p_fuel bigint[], p_wall_us bigint[], p_cpu_us bigint[], p_memory_peak_bytes bigint[], p_logs text[], p_log_dropped_bytes bigint[]
) returns table (id bigint, state leasehold.job_state)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_poison bigint[];
    v_poison_lease_nos int[];
begin
    return query
        select c, 'cancelled'::leasehold.job_state
          from leasehold.finish_cancel(p_worker_id, p_ids, p_lease_nos, p_fuel, p_wall_us, p_cpu_us, p_memory_peak_bytes, p_logs, p_log_dropped_bytes) c;
    select array_agg(j.id), array_agg(j.lease_no) into v_poison, v_poison_lease_nos
      from unnest(p_ids, p_lease_nos, p_failure_kinds) r(run_id, run_lease_no, failure_kind)
      join leasehold.live_jobs j on j.id = r.run_id and j.lease_no = r.run_lease_no and j.running
     where r.failure_kind is not null and j.crash_count + 1 >= p_crash_limit;
    if v_poison is not null then
        update leasehold.live_jobs j set crash_count = j.crash_count + 1 where j.id = any(v_poison);
        return query
            select b, 'dead'::leasehold.job_state
              from leasehold.bury(p_worker_id, v_poison, v_poison_lease_nos,
                array(select p_failure_kinds[array_position(p_ids, x)] from unnest(v_poison) x),
                array(select p_messages[array_position(p_ids, x)] || format(' (crash number %s, the limit)', p_crash_limit) from unnest(v_poison) x),
                array(select null::text from unnest(v_poison) x),
                array(select p_fuel[array_position(p_ids, x)] from unnest(v_poison) x),
                array(select p_wall_us[array_position(p_ids, x)] from unnest(v_poison) x),
                array(select p_cpu_us[array_position(p_ids, x)] from unnest(v_poison) x),
                array(select p_memory_peak_bytes[array_position(p_ids, x)] from unnest(v_poison) x),
                array(select p_logs[array_position(p_ids, x)] from unnest(v_poison) x),
                array(select p_log_dropped_bytes[array_position(p_ids, x)] from unnest(v_poison) x)) b;
    end if;
    return query
        select g, 'queued'::leasehold.job_state
          from leasehold.give_back(p_worker_id, 'release', p_ids, p_lease_nos, p_delays_ms,
                                   array(select k is not null from unnest(p_failure_kinds) k), p_failure_kinds, p_messages,
                                   p_fuel, p_wall_us, p_cpu_us, p_memory_peak_bytes, p_logs, p_log_dropped_bytes) g;
end $$;
