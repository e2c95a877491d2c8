-- running -> dead, for a batch of runs: the same run would end the same way again, or no attempt is left. Answers the ids
-- that were settled. Messages and backtraces are text that the worker has made storable.
create or replace function leasehold.bury(
    p_worker_id bigint, p_ids bigint[], p_lease_nos int[], p_failure_kinds text[], p_messages text[], p_backtraces text[],
    p_fuel bigint[], p_wall_us bigint[], p_cpu_us bigint[], p_memory_peak_bytes bigint[], p_logs text[], p_log_dropped_bytes bigint[]
) returns setof bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off set lock_timeout = '100ms'
as $$
declare
    v_ended record;
begin
    with ended as (
        delete from leasehold.live_jobs j
         using unnest(p_ids, p_lease_nos, p_failure_kinds, p_messages, p_backtraces, p_fuel, p_wall_us, p_cpu_us, p_memory_peak_bytes,
                      p_logs, p_log_dropped_bytes)
               r(run_id, run_lease_no, failure_kind, message, backtrace, fuel, wall_us, cpu_us, memory_peak_bytes, log, log_dropped_bytes)
         where j.id = r.run_id and j.lease_no = r.run_lease_no and j.running
        returning j.*, r.*
    ), attempts as (
        insert into leasehold.attempts (tenant_id, job_id, lease_no, attempt, outcome, version, worker_id, started_at, finished_at,
                                        failure_kind, message, backtrace, log, log_dropped_bytes, fuel, wall_us, cpu_us, memory_peak_bytes)
        select e.tenant_id, e.id, e.lease_no, e.attempt, 'dead', e.version, p_worker_id, e.started_at, clock_timestamp(),
               e.failure_kind, e.message, e.backtrace, e.log, e.log_dropped_bytes, e.fuel, e.wall_us, e.cpu_us, e.memory_peak_bytes
          from ended e
    ), metered as (
        insert into leasehold.usage_log (tenant_id, module_id, day, runs, failed, crashed, cpu_us, fuel, memory_byte_seconds, bytes_in, bytes_out)
        select r.tenant_id, r.module_id, (clock_timestamp() at time zone 'UTC')::date, count(*), count(*), count(*) filter (where r.failure_kind = 'crash'), coalesce(sum(r.cpu_us), 0),
               coalesce(sum(r.fuel), 0), coalesce(sum(r.memory_peak_bytes::float8 * r.wall_us / 1e6), 0), sum(octet_length(r.payload)), 0
          from ended r group by r.tenant_id, r.module_id
    ), history as (
        insert into leasehold.history (tenant_id, module_id, id, state, priority, attempt, max_attempts, lease_no, crash_count, timeout_ms,
                                       backoff_ms, version, version_pinned, run_at, enqueued_at, started_at, finished_at, worker_id,
                                       fuel, wall_us, cpu_us, memory_peak_bytes, queue, payload, failure_kind, error, expires_at, options)
        select e.tenant_id, e.module_id, e.id, 'dead', e.priority, e.attempt, e.max_attempts, e.lease_no, e.crash_count, e.timeout_ms,
               e.backoff_ms, e.version, e.version_pinned, e.run_at, e.enqueued_at, e.started_at, clock_timestamp(), p_worker_id,
               e.fuel, e.wall_us, e.cpu_us, e.memory_peak_bytes, e.queue, e.payload, e.failure_kind, e.message, e.expires_at, e.options
          from ended e
    )
    select array_agg(e.id) as ids, (select array_agg(g) from ended f, unnest(f.held_gates) g) as places,
           array_agg(e.id) filter (where (e.options -> 'notify')::boolean) as told
      into v_ended from ended e;
    perform leasehold.conclude(v_ended.ids, 'dead', v_ended.places, v_ended.told);
    return query select unnest(v_ended.ids);
end $$;
