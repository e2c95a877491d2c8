-- A live job to history as cancelled, whatever it was doing; the one way behind cancel, finish_cancel and after_end, which hold
-- the guards. Frees its places; who waits for it is the caller's to see to. Internal: not granted to anyone.
create or replace function leasehold.move_to_cancelled(p_id bigint, p_worker_id bigint, p_fuel bigint, p_wall_us bigint, p_cpu_us bigint, p_memory_peak_bytes bigint)
returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
    v_job record;
begin
    delete from leasehold.live_jobs j where j.id = p_id returning j.* into v_job;
    insert into leasehold.history (tenant_id, module_id, id, state, priority, attempt, max_attempts, lease_no, crash_count, timeout_ms,
                                   backoff_ms, version, version_pinned, run_at, enqueued_at, started_at, finished_at, worker_id,
                                   fuel, wall_us, cpu_us, memory_peak_bytes, queue, payload, expires_at, options)
    values (v_job.tenant_id, v_job.module_id, v_job.id, 'cancelled', v_job.priority, v_job.attempt, v_job.max_attempts, v_job.lease_no, v_job.crash_count, v_job.timeout_ms,
            v_job.backoff_ms, v_job.version, v_job.version_pinned, coalesce(v_job.due_at, v_job.run_at), v_job.enqueued_at, v_job.started_at, clock_timestamp(), p_worker_id,
            p_fuel, p_wall_us, p_cpu_us, p_memory_peak_bytes, v_job.queue, v_job.payload, v_job.expires_at, v_job.options);
    if v_job.waits_at is not null then
        delete from leasehold.waiting_jobs w where (w.gate_id, w.queue, w.priority, w.due_at, w.job_id) = (v_job.waits_at, v_job.queue, v_job.priority, v_job.due_at, v_job.id);
        delete from leasehold.dependencies d where d.job_id = v_job.id;
    end if;
    perform leasehold.leave_gates(v_job.held_gates);
    if (v_job.options -> 'notify')::boolean then
        perform leasehold.tell(array[p_id], 'cancelled');
    end if;
end $$;
