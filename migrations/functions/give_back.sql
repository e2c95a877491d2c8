-- running -> queued without counting the attempt, for a batch of runs: the one way behind snooze (the guest asked for it)
-- and release (a drain, or a fault of the worker's own; then p_crashed counts it towards the crash limit, so that a job which
-- breaks every worker is buried in the end). A job that was asked to cancel is cancelled instead. Answers the ids that were
-- settled.
create or replace function leasehold.give_back(
    p_worker_id bigint, p_outcome text, p_ids bigint[], p_lease_nos int[], p_delays_ms bigint[], p_crashed bool[], p_failure_kinds text[], p_messages text[],
    p_fuel bigint[], p_wall_us bigint[], p_cpu_us bigint[], p_memory_peak_bytes bigint[], p_logs text[], p_log_dropped_bytes bigint[]
) returns setof bigint
language plpgsql volatile set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off set lock_timeout = '100ms'
as $$
declare
    v_back record;
begin
    return query
        select leasehold.finish_cancel(p_worker_id, p_ids, p_lease_nos, p_fuel, p_wall_us, p_cpu_us, p_memory_peak_bytes, p_logs, p_log_dropped_bytes);
    with held as (
        select j.*, r.*
          from unnest(p_ids, p_lease_nos, p_delays_ms, p_crashed, p_failure_kinds, p_messages, p_fuel, p_wall_us, p_cpu_us,
                      p_memory_peak_bytes, p_logs, p_log_dropped_bytes)
               r(run_id, run_lease_no, delay_ms, crashed, failure_kind, message, fuel, wall_us, cpu_us, memory_peak_bytes, log, log_dropped_bytes)
          join leasehold.live_jobs j on j.id = r.run_id and j.lease_no = r.run_lease_no and j.running
           for no key update of j
    ), attempts as (
        insert into leasehold.attempts (tenant_id, job_id, lease_no, attempt, outcome, version, worker_id, started_at, finished_at,
                                        failure_kind, message, log, log_dropped_bytes, fuel, wall_us, cpu_us, memory_peak_bytes)
        select h.tenant_id, h.id, h.lease_no, h.attempt, p_outcome, h.version, p_worker_id, h.started_at, clock_timestamp(),
               h.failure_kind, h.message, h.log, h.log_dropped_bytes, h.fuel, h.wall_us, h.cpu_us, h.memory_peak_bytes
          from held h where h.log is not null or h.failure_kind is not null
    ), metered as (
        insert into leasehold.usage_log (tenant_id, module_id, day, runs, failed, crashed, cpu_us, fuel, memory_byte_seconds, bytes_in, bytes_out)
        select r.tenant_id, r.module_id, (clock_timestamp() at time zone 'UTC')::date, count(*), count(r.failure_kind), 0, coalesce(sum(r.cpu_us), 0),
               coalesce(sum(r.fuel), 0), coalesce(sum(r.memory_peak_bytes::float8 * r.wall_us / 1e6), 0), sum(octet_length(r.payload)), 0
          from held r where r.wall_us > 0 group by r.tenant_id, r.module_id
    ), back as (
        update leasehold.live_jobs j
           set running = false, claim_id = null, started_at = null, held_gates = null, attempt = j.attempt - 1,
               crash_count = j.crash_count + h.crashed::int,
               version = case when j.version_pinned then j.version end,
               run_at = clock_timestamp() + h.delay_ms * interval '1 millisecond'
          from held h
         where j.id = h.id
    )
    select array_agg(h.id) as ids, (select array_agg(g) from held f, unnest(f.held_gates) g) as places into v_back from held h;
    if v_back.places is not null then
        perform leasehold.leave_gates(v_back.places);
    end if;
    return query select unnest(v_back.ids);
end $$;
