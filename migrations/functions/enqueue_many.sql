-- - -> queued, for many jobs of one module in one statement: answers their ids in the order of the payloads. Same options
-- and refusals as enqueue; the jobs are due in the order of the payloads. unique_keys has one for each payload: a job whose key
-- is another's answers that one's id, and the others come in.
drop function if exists leasehold.enqueue_many(text, jsonb[], text, text, int, timestamptz, int, interval, interval, int);
create or replace function leasehold.enqueue_many(
    module text, payloads jsonb[], tenant text default 'default', queue text default 'default',
    priority int default 0, run_at timestamptz default null, max_attempts int default null, timeout interval default null,
    backoff interval default null, version int default null,
    concurrency_key text default null, concurrency_limit int default 1, rate_key text default null,
    unique_keys text[] default null, unique_for interval default null, on_conflict text default 'keep', expires_at timestamptz default null,
    after bigint[] default null, after_group bigint default null, on_dead text default 'cancel', group_id bigint default null,
    backoff_factor float8 default null, backoff_cap interval default null, backoff_jitter float8 default null, notify boolean default false
) returns setof bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_job record;
    v_payloads bytea[];
    v_large record;
    v_options jsonb;
    v_ids bigint[];
    v_now timestamptz;
begin
    if payloads is null then
        raise exception 'payloads is null' using errcode = 'LH003', hint = 'pass an empty array for no jobs';
    elsif array_ndims(payloads) > 1 then
        raise exception 'payloads has % dimensions; it must have 1', array_ndims(payloads) using errcode = 'LH003';
    elsif array_position(payloads, null) is not null then
        raise exception 'payload number % is null', array_position(payloads, null) - array_lower(payloads, 1) + 1 using errcode = 'LH003';
    elsif unique_keys is not null and (array_ndims(unique_keys) > 1 or cardinality(unique_keys) <> cardinality(payloads)) then
        raise exception 'there are % unique keys for % payloads', cardinality(unique_keys), cardinality(payloads) using errcode = 'LH003';
    end if;
    v_payloads := array(select convert_to(p::text, 'UTF8') from unnest(payloads) p);
    select n, octet_length(p) as bytes into v_large from unnest(v_payloads) with ordinality u(p, n) where octet_length(p) > 16777216 limit 1;
    if found then
        raise exception 'payload number % of % bytes exceeds the limit of 16777216 bytes', v_large.n, v_large.bytes
            using errcode = 'LH003', hint = 'store it elsewhere and pass where';
    end if;
    if unique_keys is not null or expires_at is not null or after is not null or after_group is not null or on_conflict <> 'keep' then
        -- One by one: each is checked against others.
        return query
            select leasehold.enqueue_bytes(module, u.p, tenant, queue, priority, run_at, max_attempts, timeout, backoff, version, concurrency_key,
                       concurrency_limit, rate_key, u.k, unique_for, on_conflict, expires_at, after, after_group, on_dead, group_id,
                       backoff_factor, backoff_cap, backoff_jitter, notify)
              from unnest(v_payloads, unique_keys) with ordinality u(p, k, n) order by u.n;
        return;
    end if;
    v_job := leasehold.check_enqueue(module, tenant, queue, priority, max_attempts, timeout, backoff, version);
    v_options := leasehold.job_options(concurrency_key, concurrency_limit, rate_key, null, unique_for, group_id, backoff_factor, backoff_cap,
                                       backoff_jitter, notify, on_dead);
    perform pg_catalog.pg_current_xact_id();  -- before the clock, as in enqueue
    v_now := clock_timestamp();
    if v_job.counted and cardinality(payloads) > 0 then
        perform leasehold.take_quota(v_job.tenant_id, cardinality(payloads), (select sum(octet_length(p)) from unnest(v_payloads) p));
    end if;
    with added as (
        insert into leasehold.live_jobs (tenant_id, module_id, queue, priority, run_at, enqueued_at, max_attempts, timeout_ms,
                                         backoff_ms, version, version_pinned, payload, options, counted)
        select v_job.tenant_id, v_job.module_id, enqueue_many.queue, enqueue_many.priority, greatest(enqueue_many.run_at, v_now),
               v_now, v_job.max_attempts, v_job.timeout_ms, v_job.backoff_ms, enqueue_many.version,
               enqueue_many.version is not null, p, v_options, nullif(v_job.counted, false)
          from unnest(v_payloads) as p
        returning live_jobs.id
    )
    select array_agg(a.id) into v_ids from added a;
    if group_id is not null then
        insert into leasehold.group_members select enqueue_many.group_id, i from unnest(v_ids) i;
    end if;
    if cardinality(payloads) > 0 and (run_at is null or run_at <= v_now) then
        perform leasehold.wake(queue);
    end if;
    return query select unnest(v_ids);
end $$;
