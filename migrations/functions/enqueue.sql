-- - -> queued. Called by producers, in their own transaction; answers the job's id.
--
-- Three overloads: payload as jsonb, as text that holds JSON (an untyped literal lands here), and as bytea (raw bytes).
-- Their bodies are parsed when they are made, so no caller's search_path can change what they call.
-- Refusals have an SQLSTATE of their own: LH001 no such tenant, LH002 no such module or version, LH003 a bad argument.

-- The one place that inserts a job. Ids of module and tenant are looked up here, so a caller can't forge them.
create or replace function leasehold.enqueue_bytes(
    p_module text, p_payload bytea, p_tenant text, p_queue text, p_priority int, p_run_at timestamptz, p_max_attempts int,
    p_timeout interval, p_backoff interval, p_version int
) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_job record;
    v_id bigint;
    v_now timestamptz;
begin
    v_job := leasehold.check_enqueue(p_module, p_tenant, p_queue, p_priority, p_max_attempts, p_timeout, p_backoff, p_version);
    if p_payload is null then
        raise exception 'payload is null' using errcode = 'LH003', hint = 'leave the argument out for an empty JSON object';
    elsif octet_length(p_payload) > 16777216 then  -- live_jobs_payload_fits_into_a_claim, in words
        raise exception 'payload of % bytes exceeds the limit of 16777216 bytes', octet_length(p_payload)
            using errcode = 'LH003', hint = 'store it elsewhere and pass where';
    end if;
    -- The transaction's id comes before its clock reading: whoever sees in a snapshot that all older transactions have
    -- ended knows that no job with an earlier run_at can still appear (see claim).
    perform pg_catalog.pg_current_xact_id();
    v_now := clock_timestamp();
    insert into leasehold.live_jobs (tenant_id, module_id, queue, priority, run_at, enqueued_at, max_attempts, timeout_ms,
                                     backoff_ms, version, version_pinned, payload)
    values (v_job.tenant_id, v_job.module_id, p_queue, p_priority, greatest(p_run_at, v_now), v_now, p_max_attempts,
            v_job.timeout_ms, v_job.backoff_ms, p_version, p_version is not null, p_payload)
    returning id into v_id;
    if p_run_at is null or p_run_at <= v_now then
        perform leasehold.wake(p_queue);
    end if;
    return v_id;
end $$;

create or replace function leasehold.enqueue(
    module text, payload jsonb default '{}', tenant text default 'default', queue text default 'default',
    priority int default 0, run_at timestamptz default null, max_attempts int default 5, timeout interval default null,
    backoff interval default null, version int default null
) returns bigint
language sql volatile
return leasehold.enqueue_bytes(module, convert_to(payload::text, 'UTF8'), tenant, queue, priority, run_at, max_attempts, timeout, backoff, version);

create or replace function leasehold.enqueue(
    module text, payload text, tenant text default 'default', queue text default 'default',
    priority int default 0, run_at timestamptz default null, max_attempts int default 5, timeout interval default null,
    backoff interval default null, version int default null
) returns bigint
language sql volatile
return leasehold.enqueue_bytes(module, convert_to(payload::jsonb::text, 'UTF8'), tenant, queue, priority, run_at, max_attempts, timeout, backoff, version);

create or replace function leasehold.enqueue(
    module text, payload bytea, tenant text default 'default', queue text default 'default',
    priority int default 0, run_at timestamptz default null, max_attempts int default 5, timeout interval default null,
    backoff interval default null, version int default null
) returns bigint
language sql volatile
return leasehold.enqueue_bytes(module, payload, tenant, queue, priority, run_at, max_attempts, timeout, backoff, version);
