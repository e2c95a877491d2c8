-- - -> queued, for many jobs of one module in one statement: answers their ids in the order of the payloads. Same options
-- and refusals as enqueue; the jobs are due in the order of the payloads.
create or replace function leasehold.enqueue_many(
    module text, payloads jsonb[], tenant text default 'default', queue text default 'default',
    priority int default 0, run_at timestamptz default null, max_attempts int default 5, timeout interval default null,
    backoff interval default null, version int default null
) returns setof bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_job record;
    v_now timestamptz;
begin
    v_job := leasehold.check_enqueue(module, tenant, queue, priority, max_attempts, timeout, backoff, version);
    if array_position(payloads, null) is not null then
        raise exception 'payload number % is null', array_position(payloads, null) using errcode = 'LH003';
    end if;
    perform pg_catalog.pg_current_xact_id();  -- before the clock, as in enqueue
    v_now := clock_timestamp();
    return query
        insert into leasehold.live_jobs (tenant_id, module_id, queue, priority, run_at, enqueued_at, max_attempts, timeout_ms,
                                         backoff_ms, version, version_pinned, payload)
        select v_job.tenant_id, v_job.module_id, enqueue_many.queue, enqueue_many.priority, greatest(enqueue_many.run_at, v_now),
               v_now, enqueue_many.max_attempts, v_job.timeout_ms, v_job.backoff_ms, enqueue_many.version,
               enqueue_many.version is not null, convert_to(p::text, 'UTF8')
          from unnest(payloads) as p
        returning live_jobs.id;
    if cardinality(payloads) > 0 and (run_at is null or run_at <= v_now) then
        perform leasehold.wake(queue);
    end if;
end $$;
