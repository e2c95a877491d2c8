-- - -> queued. Called by producers, in their own transaction; answers the job's id.
--
-- Three overloads: payload as jsonb, as text that holds JSON (an untyped literal lands here), and as bytea (raw bytes).
-- Their bodies are parsed when they are made, so no caller's search_path can change what they call.
-- Refusals have an SQLSTATE of their own: LH001 no such tenant, LH002 no such module or version, LH003 a bad argument, LH004 no
-- such job to wait for.

-- The one place that inserts a job by itself. Ids of module and tenant are looked up here, so a caller can't forge them.
create or replace function leasehold.enqueue_bytes(
    p_module text, p_payload bytea, p_tenant text, p_queue text, p_priority int, p_run_at timestamptz, p_max_attempts int,
    p_timeout interval, p_backoff interval, p_version int, p_options jsonb, p_expires_at timestamptz, p_on_conflict text,
    p_after bigint[], p_after_group bigint
) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_job record;
    v_id bigint;
    v_owner bigint;
    v_now timestamptz;
    v_waits boolean := p_after is not null or p_after_group is not null;
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
    if p_expires_at <= greatest(p_run_at, v_now) then
        raise exception 'expires_at % is not after %, when the job is due', p_expires_at, greatest(p_run_at, v_now) using errcode = 'LH003';
    elsif not isfinite(p_expires_at) or not isfinite(p_run_at) then
        raise exception 'run_at and expires_at are instants, not infinity' using errcode = 'LH003';
    end if;
    if p_options ? 'unique_key' then
        v_id := nextval('leasehold.live_jobs_id_seq');
        v_owner := leasehold.take_unique_key(v_job.tenant_id, p_options, v_id, v_now);
        if v_owner <> v_id then
            return leasehold.meet_unique_job(v_owner, p_on_conflict, v_job.module_id, p_payload, p_queue, p_priority, greatest(p_run_at, v_now));
        end if;
    elsif p_on_conflict <> 'keep' then
        raise exception 'on_conflict % without a unique_key', quote_literal(left(p_on_conflict, 80)) using errcode = 'LH003';
    end if;
    insert into leasehold.live_jobs (tenant_id, module_id, id, queue, priority, run_at, due_at, waits_at, enqueued_at, max_attempts, timeout_ms,
                                     backoff_ms, version, version_pinned, payload, expires_at, options)
    overriding system value
    values (v_job.tenant_id, v_job.module_id, coalesce(v_id, nextval('leasehold.live_jobs_id_seq')), p_queue, p_priority,
            case when v_waits then 'infinity' else greatest(p_run_at, v_now) end, case when v_waits then greatest(p_run_at, v_now) end,
            case when v_waits then 0 end, v_now, v_job.max_attempts, v_job.timeout_ms, v_job.backoff_ms, p_version, p_version is not null, p_payload,
            p_expires_at, p_options)
    returning id into v_id;
    if p_expires_at is not null then
        insert into leasehold.expiries values (p_expires_at, v_id);
    end if;
    if p_options ? 'group_id' then
        insert into leasehold.group_members values ((p_options ->> 'group_id')::bigint, v_id);
    end if;
    if v_waits then
        perform leasehold.wait_for(v_id, v_job.tenant_id, p_after, p_after_group, p_options ->> 'on_dead');
    elsif p_run_at is null or p_run_at <= v_now then
        perform leasehold.wake(p_queue);
    end if;
    return v_id;
end $$;

-- What is special about a job, as live_jobs.options holds it; null for a plain job. LH003: an argument outside its range.
create or replace function leasehold.job_options(
    p_concurrency_key text, p_concurrency_limit int, p_rate_key text, p_unique_key text, p_unique_for interval, p_group_id bigint,
    p_backoff_factor float8, p_backoff_cap interval, p_backoff_jitter float8, p_notify boolean, p_on_dead text
) returns jsonb
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
    if coalesce(p_concurrency_key, p_rate_key, p_unique_key) is null and coalesce(p_unique_for, p_backoff_cap) is null
       and p_group_id is null and coalesce(p_backoff_factor, p_backoff_jitter) is null and not coalesce(p_notify, false)
       and coalesce(p_concurrency_limit, 1) = 1 and coalesce(p_on_dead, 'cancel') = 'cancel' then
        return null;
    end if;
    perform leasehold.check_key('concurrency_key', p_concurrency_key), leasehold.check_key('rate_key', p_rate_key),
            leasehold.check_key('unique_key', p_unique_key);
    if p_concurrency_limit not between 1 and 100000 then
        raise exception 'concurrency_limit % is outside 1 to 100000', p_concurrency_limit using errcode = 'LH003';
    elsif p_concurrency_limit <> 1 and p_concurrency_key is null then
        raise exception 'concurrency_limit % without a concurrency_key limits nothing', p_concurrency_limit using errcode = 'LH003';
    elsif p_unique_for is not null and p_unique_key is null then
        raise exception 'unique_for % without a unique_key', p_unique_for using errcode = 'LH003';
    elsif extract(epoch from p_unique_for) not between 0 and 31622400 then
        raise exception 'unique_for % is outside 0 s to 366 days', p_unique_for using errcode = 'LH003';
    elsif p_backoff_factor not between 1 and 100 then
        raise exception 'backoff_factor % is outside 1 to 100', p_backoff_factor using errcode = 'LH003';
    elsif extract(epoch from p_backoff_cap) not between 0 and 31622400 then
        raise exception 'backoff_cap % is outside 0 s to 366 days', p_backoff_cap using errcode = 'LH003';
    elsif p_backoff_jitter not between 0 and 1 then
        raise exception 'backoff_jitter % is outside 0 to 1', p_backoff_jitter using errcode = 'LH003';
    elsif p_on_dead not in ('cancel', 'run', 'wait') then
        raise exception 'on_dead % is none of cancel, run and wait', quote_literal(left(p_on_dead, 80)) using errcode = 'LH003';
    end if;
    return nullif(jsonb_strip_nulls(jsonb_build_object(
        'concurrency_key', p_concurrency_key, 'concurrency_limit', nullif(p_concurrency_limit, 1), 'rate_key', p_rate_key,
        'unique_key', p_unique_key, 'unique_for_ms', (extract(epoch from p_unique_for) * 1000)::bigint, 'group_id', p_group_id,
        'backoff_factor', p_backoff_factor, 'backoff_cap_ms', (extract(epoch from p_backoff_cap) * 1000)::bigint, 'backoff_jitter', p_backoff_jitter,
        'notify', nullif(p_notify, false), 'on_dead', nullif(p_on_dead, 'cancel'))), '{}');
end $$;

create or replace function leasehold.enqueue(
    module text, payload jsonb default '{}', tenant text default 'default', queue text default 'default',
    priority int default 0, run_at timestamptz default null, max_attempts int default null, timeout interval default null,
    backoff interval default null, version int default null,
    concurrency_key text default null, concurrency_limit int default 1, rate_key text default null,
    unique_key text default null, unique_for interval default null, on_conflict text default 'keep', expires_at timestamptz default null,
    after bigint[] default null, after_group bigint default null, on_dead text default 'cancel', group_id bigint default null,
    backoff_factor float8 default null, backoff_cap interval default null, backoff_jitter float8 default null, notify boolean default false
) returns bigint
language sql volatile
return leasehold.enqueue_bytes(module, convert_to(payload::text, 'UTF8'), tenant, queue, priority, run_at, max_attempts, timeout, backoff, version,
    leasehold.job_options(concurrency_key, concurrency_limit, rate_key, unique_key, unique_for, group_id, backoff_factor, backoff_cap, backoff_jitter, notify, on_dead),
    expires_at, on_conflict, after, after_group);

create or replace function leasehold.enqueue(
    module text, payload text, tenant text default 'default', queue text default 'default',
    priority int default 0, run_at timestamptz default null, max_attempts int default null, timeout interval default null,
    backoff interval default null, version int default null,
    concurrency_key text default null, concurrency_limit int default 1, rate_key text default null,
    unique_key text default null, unique_for interval default null, on_conflict text default 'keep', expires_at timestamptz default null,
    after bigint[] default null, after_group bigint default null, on_dead text default 'cancel', group_id bigint default null,
    backoff_factor float8 default null, backoff_cap interval default null, backoff_jitter float8 default null, notify boolean default false
) returns bigint
language sql volatile
return leasehold.enqueue_bytes(module, convert_to(payload::jsonb::text, 'UTF8'), tenant, queue, priority, run_at, max_attempts, timeout, backoff, version,
    leasehold.job_options(concurrency_key, concurrency_limit, rate_key, unique_key, unique_for, group_id, backoff_factor, backoff_cap, backoff_jitter, notify, on_dead),
    expires_at, on_conflict, after, after_group);

create or replace function leasehold.enqueue(
    module text, payload bytea, tenant text default 'default', queue text default 'default',
    priority int default 0, run_at timestamptz default null, max_attempts int default null, timeout interval default null,
    backoff interval default null, version int default null,
    concurrency_key text default null, concurrency_limit int default 1, rate_key text default null,
    unique_key text default null, unique_for interval default null, on_conflict text default 'keep', expires_at timestamptz default null,
    after bigint[] default null, after_group bigint default null, on_dead text default 'cancel', group_id bigint default null,
    backoff_factor float8 default null, backoff_cap interval default null, backoff_jitter float8 default null, notify boolean default false
) returns bigint
language sql volatile
return leasehold.enqueue_bytes(module, payload, tenant, queue, priority, run_at, max_attempts, timeout, backoff, version,
    leasehold.job_options(concurrency_key, concurrency_limit, rate_key, unique_key, unique_for, group_id, backoff_factor, backoff_cap, backoff_jitter, notify, on_dead),
    expires_at, on_conflict, after, after_group);
