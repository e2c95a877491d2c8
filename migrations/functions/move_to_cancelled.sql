-- A live job to history as cancelled, whatever it was doing; the one way behind cancel and finish_cancel, which hold the
-- guards. Internal: not granted to anyone.
create or replace function leasehold.move_to_cancelled(p_id bigint, p_worker_id bigint, p_fuel bigint, p_wall_us bigint, p_cpu_us bigint, p_memory_peak_bytes bigint)
returns void
language sql volatile set search_path = pg_catalog, pg_temp as $$
    with ended as (
        delete from leasehold.live_jobs j where j.id = p_id returning j.*
    )
    insert into leasehold.history (tenant_id, module_id, id, state, priority, attempt, max_attempts, lease_no, crash_count, timeout_ms,
                                   backoff_ms, version, version_pinned, run_at, enqueued_at, started_at, finished_at, worker_id,
                                   fuel, wall_us, cpu_us, memory_peak_bytes, queue, payload)
    select e.tenant_id, e.module_id, e.id, 'cancelled', e.priority, e.attempt, e.max_attempts, e.lease_no, e.crash_count, e.timeout_ms,
           e.backoff_ms, e.version, e.version_pinned, e.run_at, e.enqueued_at, e.started_at, clock_timestamp(), p_worker_id,
           p_fuel, p_wall_us, p_cpu_us, p_memory_peak_bytes, e.queue, e.payload
      from ended e;
$$;
