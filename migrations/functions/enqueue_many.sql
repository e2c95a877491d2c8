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
    v_payloads bytea[];
    v_large record;
    v_now timestamptz;
begin
    v_job := leasehold.check_enqueue(module, tenant, queue, priority, max_attempts, timeout, backoff, version);
    if payloads is null then
        raise exception 'payloads is null' using errcode = 'LH003', hint = 'pass an empty array for no jobs';
    elsif array_ndims(payloads) > 1 then
        raise exception 'payloads has % dimensions; it must have 1', array_ndims(payloads) using errcode = 'LH003';
    elsif array_position(payloads, null) is not null then
        raise exception 'payload number % is null', array_position(payloads, null) - array_lower(payloads, 1) + 1 using errcode = 'LH003';
    end if;
    v_payloads := array(select convert_to(p::text, 'UTF8') from unnest(payloads) p);
    select n, octet_length(p) as bytes into v_large from unnest(v_payloads) with ordinality u(p, n) where octet_length(p) > 16777216 limit 1;
    if found then
        raise exception 'payload number % of % bytes exceeds the limit of 16777216 bytes', v_large.n, v_large.bytes
            using errcode = 'LH003', hint = 'store it elsewhere and pass where';
    end if;
    perform pg_catalog.pg_current_xact_id();  -- before the clock, as in enqueue
    v_now := clock_timestamp();
    return query
        insert into leasehold.live_jobs (tenant_id, module_id, queue, priority, run_at, enqueued_at, max_attempts, timeout_ms,
                                         backoff_ms, version, version_pinned, payload)
        select v_job.tenant_id, v_job.module_id, enqueue_many.queue, enqueue_many.priority, greatest(enqueue_many.run_at, v_now),
               v_now, enqueue_many.max_attempts, v_job.timeout_ms, v_job.backoff_ms, enqueue_many.version,
               enqueue_many.version is not null, p
          from unnest(v_payloads) as p
        returning live_jobs.id;
    if cardinality(payloads) > 0 and (run_at is null or run_at <= v_now) then
        perform leasehold.wake(queue);
    end if;
end $$;
