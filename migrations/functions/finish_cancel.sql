-- running -> cancelled, for those of a batch of runs that were asked to stop and have ended. Answers the ids that were settled.
create or replace function leasehold.finish_cancel(
    p_worker_id bigint, p_ids bigint[], p_lease_nos int[],
    p_fuel bigint[], p_wall_us bigint[], p_cpu_us bigint[], p_memory_peak_bytes bigint[], p_logs text[], p_log_dropped_bytes bigint[]
) returns setof bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off set lock_timeout = '100ms'
as $$
declare
    v_run record;
begin
    for v_run in
        select j.*, r.*
          from unnest(p_ids, p_lease_nos, p_fuel, p_wall_us, p_cpu_us, p_memory_peak_bytes, p_logs, p_log_dropped_bytes)
               r(run_id, run_lease_no, fuel, wall_us, cpu_us, memory_peak_bytes, log, log_dropped_bytes)
          join leasehold.live_jobs j on j.id = r.run_id and j.lease_no = r.run_lease_no and j.running and j.cancel_requested
           for update of j
    loop
        insert into leasehold.attempts (tenant_id, job_id, lease_no, attempt, outcome, version, worker_id, started_at, finished_at,
                                        log, log_dropped_bytes, fuel, wall_us, cpu_us, memory_peak_bytes)
        values (v_run.tenant_id, v_run.id, v_run.lease_no, v_run.attempt, 'cancelled', v_run.version, p_worker_id, v_run.started_at,
                clock_timestamp(), v_run.log, v_run.log_dropped_bytes, v_run.fuel, v_run.wall_us, v_run.cpu_us, v_run.memory_peak_bytes);
        if v_run.wall_us > 0 then
            insert into leasehold.usage_log (tenant_id, module_id, day, runs, failed, crashed, cpu_us, fuel, memory_byte_seconds, bytes_in, bytes_out)
            values (v_run.tenant_id, v_run.module_id, (clock_timestamp() at time zone 'UTC')::date, 1, 0, 0, v_run.cpu_us, v_run.fuel,
                    v_run.memory_peak_bytes::float8 * v_run.wall_us / 1e6, octet_length(v_run.payload), 0);
        end if;
        perform leasehold.move_to_cancelled(v_run.id, p_worker_id, v_run.fuel, v_run.wall_us, v_run.cpu_us, v_run.memory_peak_bytes);
        perform leasehold.after_end(array[v_run.id], 'cancelled');
        return next v_run.id;
    end loop;
end $$;
