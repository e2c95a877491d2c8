-- running -> queued with attempts left, running -> dead at the last attempt or where the job expires before the next one, for a
-- batch of runs. A job that was asked to cancel is cancelled instead: what was asked of a running job holds for a queued one.
-- Answers the ids that were settled, each with the state it came to. The delay counts from now by this server's clock.
create or replace function leasehold.fail(
    p_worker_id bigint, p_ids bigint[], p_lease_nos int[], p_delays_ms bigint[], p_failure_kinds text[], p_messages text[], p_backtraces text[],
    p_fuel bigint[], p_wall_us bigint[], p_cpu_us bigint[], p_memory_peak_bytes bigint[], p_logs text[], p_log_dropped_bytes bigint[]
) returns table (id bigint, state leasehold.job_state)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off set lock_timeout = '100ms'
as $$
declare
    v_back record;
begin
    return query
        select c, 'cancelled'::leasehold.job_state
          from leasehold.finish_cancel(p_worker_id, p_ids, p_lease_nos, p_fuel, p_wall_us, p_cpu_us, p_memory_peak_bytes, p_logs, p_log_dropped_bytes) c;
    -- The attempt's record is written from the row as it was while it ran; the lock keeps it so.
    with held as (
        select j.*, r.*
          from unnest(p_ids, p_lease_nos, p_delays_ms, p_failure_kinds, p_messages, p_backtraces, p_fuel, p_wall_us, p_cpu_us,
                      p_memory_peak_bytes, p_logs, p_log_dropped_bytes)
               r(run_id, run_lease_no, delay_ms, failure_kind, message, backtrace, fuel, wall_us, cpu_us, memory_peak_bytes, log, log_dropped_bytes)
          join leasehold.live_jobs j on j.id = r.run_id and j.lease_no = r.run_lease_no and j.running
         where j.attempt < j.max_attempts
           and (j.expires_at is null or j.expires_at > clock_timestamp() + r.delay_ms * interval '1 millisecond')
           for no key update of j
    ), attempts as (
        insert into leasehold.attempts (tenant_id, job_id, lease_no, attempt, outcome, version, worker_id, started_at, finished_at,
                                        failure_kind, message, backtrace, log, log_dropped_bytes, fuel, wall_us, cpu_us, memory_peak_bytes)
        select h.tenant_id, h.id, h.lease_no, h.attempt, 'fail', h.version, p_worker_id, h.started_at, clock_timestamp(),
               h.failure_kind, h.message, h.backtrace, h.log, h.log_dropped_bytes, h.fuel, h.wall_us, h.cpu_us, h.memory_peak_bytes
          from held h
    ), metered as (
        insert into leasehold.usage_log (tenant_id, module_id, day, runs, failed, crashed, cpu_us, fuel, memory_byte_seconds, bytes_in, bytes_out)
        select r.tenant_id, r.module_id, (clock_timestamp() at time zone 'UTC')::date, count(*), count(*), 0, coalesce(sum(r.cpu_us), 0),
               coalesce(sum(r.fuel), 0), coalesce(sum(r.memory_peak_bytes::float8 * r.wall_us / 1e6), 0), sum(octet_length(r.payload)), 0
          from held r group by r.tenant_id, r.module_id
    ), back as (
        update leasehold.live_jobs j
           set running = false, claim_id = null, started_at = null, held_gates = null,
               version = case when j.version_pinned then j.version end,
               run_at = clock_timestamp() + h.delay_ms * interval '1 millisecond'
          from held h
         where j.id = h.id
    )
    select array_agg(h.id) as ids, (select array_agg(g) from held f, unnest(f.held_gates) g) as places into v_back from held h;
    if v_back.places is not null then
        perform leasehold.leave_gates(v_back.places);
    end if;
    return query select unnest(v_back.ids), 'queued'::leasehold.job_state;
    return query
        select b, 'dead'::leasehold.job_state
          from leasehold.bury(p_worker_id, p_ids, p_lease_nos, p_failure_kinds, p_messages, p_backtraces, p_fuel, p_wall_us, p_cpu_us,
                              p_memory_peak_bytes, p_logs, p_log_dropped_bytes) b;
end $$;
