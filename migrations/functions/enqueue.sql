-- - -> queued. Called by producers, in their own transaction; answers the job's id.
--
-- Three overloads: payload as jsonb, as text that holds JSON (an untyped literal lands here), and as bytea (raw bytes).
-- Refusals have an SQLSTATE of their own: LH001 no such tenant, LH002 no such module or version, LH003 a bad argument, LH004 no
-- such job to wait for, LH030 and LH031 a full quota of the tenant.

-- Former ones with fewer parameters would make a call ambiguous.
drop function if exists leasehold.enqueue(text, jsonb, text, text, int, timestamptz, int, interval, interval, int);
drop function if exists leasehold.enqueue(text, text, text, text, int, timestamptz, int, interval, interval, int);
drop function if exists leasehold.enqueue(text, bytea, text, text, int, timestamptz, int, interval, interval, int);
drop function if exists leasehold.enqueue_bytes(text, bytea, text, text, int, timestamptz, int, interval, interval, int);

-- Any job, whatever is asked for, and every refusal. Ids of module and tenant are looked up here, so a caller can't forge them.
create or replace function leasehold.enqueue_bytes(
    p_module text, p_payload bytea, p_tenant text, p_queue text, p_priority int, p_run_at timestamptz, p_max_attempts int,
    p_timeout interval, p_backoff interval, p_version int, p_concurrency_key text, p_concurrency_limit int, p_rate_key text, p_unique_key text,
    p_unique_for interval, p_on_conflict text, p_expires_at timestamptz, p_after bigint[], p_after_group bigint, p_on_dead text, p_group_id bigint,
    p_backoff_factor float8, p_backoff_cap interval, p_backoff_jitter float8, p_notify boolean
) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
-- Planning the insert anew for each call would take as long as all the rest.
set plan_cache_mode = force_generic_plan as $$
declare
    v_job record;
    v_options jsonb;
    v_id bigint;
    v_owner bigint;
    v_now timestamptz;
    v_waits boolean := p_after is not null or p_after_group is not null;
begin
    v_job := leasehold.check_enqueue(p_module, p_tenant, p_queue, p_priority, p_max_attempts, p_timeout, p_backoff, p_version);
    if num_nonnulls(p_concurrency_key, p_rate_key, p_unique_key, p_unique_for, p_group_id, p_backoff_factor, p_backoff_cap, p_backoff_jitter) > 0
       or p_notify or p_concurrency_limit <> 1 or p_on_dead <> 'cancel' then
        v_options := leasehold.job_options(p_concurrency_key, p_concurrency_limit, p_rate_key, p_unique_key, p_unique_for, p_group_id,
                                           p_backoff_factor, p_backoff_cap, p_backoff_jitter, p_notify, p_on_dead);
    end if;
    if p_payload is null then
        raise exception 'payload is null' using errcode = 'LH003', hint = 'leave the argument out for an empty JSON object';
    elsif octet_length(p_payload) > 16777216 then  -- half of what one claim brings: a worker holds the payloads of all jobs that it has claimed
        raise exception 'payload of % bytes exceeds the limit of 16777216 bytes', octet_length(p_payload)
            using errcode = 'LH003', hint = 'store it elsewhere and pass where';
    end if;
    -- The transaction's id comes before its clock reading: whoever sees in a snapshot that all older transactions have
    -- ended knows that no job with an earlier run_at can still appear (see claim).
    perform pg_catalog.pg_current_xact_id();
    v_now := clock_timestamp();
    if p_expires_at <= greatest(p_run_at, v_now) then
        raise exception 'expires_at % is not after %, when the job is due', p_expires_at, greatest(p_run_at, v_now) using errcode = 'LH003';
    elsif not isfinite(p_expires_at) then
        raise exception 'expires_at is an instant, not infinity' using errcode = 'LH003', hint = 'leave the argument out for no end';
    end if;
    if p_unique_key is not null then
        v_id := nextval('leasehold.live_jobs_id_seq');
        v_owner := leasehold.take_unique_key(v_job.tenant_id, v_options, v_id, v_now);
        if v_owner <> v_id then
            return leasehold.meet_unique_job(v_owner, p_on_conflict, v_job.module_id, p_payload, p_queue, p_priority, greatest(p_run_at, v_now));
        end if;
    elsif p_on_conflict <> 'keep' then
        raise exception 'on_conflict % without a unique_key', quote_literal(left(p_on_conflict, 80)) using errcode = 'LH003';
    end if;
    if v_job.counted then
        perform leasehold.take_quota(v_job.tenant_id, 1, octet_length(p_payload));
    end if;
    insert into leasehold.live_jobs (tenant_id, module_id, id, queue, priority, run_at, due_at, waits_at, enqueued_at, max_attempts, timeout_ms,
                                     backoff_ms, version, version_pinned, payload, expires_at, options, counted)
    overriding system value
    values (v_job.tenant_id, v_job.module_id, coalesce(v_id, nextval('leasehold.live_jobs_id_seq')), p_queue, p_priority,
            case when v_waits then 'infinity' else greatest(p_run_at, v_now) end, case when v_waits then greatest(p_run_at, v_now) end,
            case when v_waits then 0 end, v_now, v_job.max_attempts, v_job.timeout_ms, v_job.backoff_ms, p_version, p_version is not null, p_payload,
            p_expires_at, v_options, nullif(v_job.counted, false))
    returning id into v_id;
    if p_expires_at is not null then
        insert into leasehold.expiries values (p_expires_at, v_id);
    end if;
    if p_group_id is not null then
        insert into leasehold.group_members values (p_group_id, v_id);
    end if;
    if v_waits then
        perform leasehold.wait_for(v_id, v_job.tenant_id, p_after, p_after_group, p_on_dead);
    elsif p_run_at is null or p_run_at <= v_now then
        perform leasehold.wake(p_queue);
    end if;
    return v_id;
end $$;

-- What users call: three functions of one text. A job with nothing special, in a lane where its tenant had one before, is one statement here, and everything
-- else is enqueue_bytes'. PL/pgSQL, since a function of SQL would be written into each caller's statement, all 25 parameters of it, and
-- planned there: 65 of 280 microseconds of a statement that is not prepared.
do $make$
declare
    c_text constant text := $text$
create or replace function leasehold.enqueue(
    module text, payload PAYLOAD, tenant text default 'default', queue text default 'default',
    priority int default 0, run_at timestamptz default null, max_attempts int default null, timeout interval default null,
    backoff interval default null, version int default null,
    concurrency_key text default null, concurrency_limit int default 1, rate_key text default null,
    unique_key text default null, unique_for interval default null, on_conflict text default 'keep', expires_at timestamptz default null,
    after bigint[] default null, after_group bigint default null, on_dead text default 'cancel', group_id bigint default null,
    backoff_factor float8 default null, backoff_cap interval default null, backoff_jitter float8 default null, notify boolean default false
) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan as $$
declare
    v_id bigint;
    v_wanted boolean;
begin
    -- Whatever is amiss inserts nothing here, and enqueue_bytes tells of it.
    if num_nonnulls(max_attempts, timeout, backoff, version, concurrency_key, rate_key, unique_key, unique_for, expires_at, after, after_group,
                    group_id, backoff_factor, backoff_cap, backoff_jitter) = 0
       and concurrency_limit = 1 and on_conflict = 'keep' and on_dead = 'cancel' and not notify then
        insert into leasehold.live_jobs as j (tenant_id, module_id, queue, priority, run_at, enqueued_at, max_attempts, payload, counted)
        select t.tenant_id, m.module_id, enqueue.queue, enqueue.priority, greatest(enqueue.run_at, n.now), n.now,
               coalesce((v.retry ->> 'max_attempts')::int, 5), p.bytes,
               case when t.counted then leasehold.take_quota(t.tenant_id, 1, octet_length(p.bytes)) end
          from leasehold.tenants t
          join leasehold.modules m on m.tenant_id = t.tenant_id and m.name = enqueue.module
          left join leasehold.module_versions v on v.module_id = m.module_id and v.version = m.active_version
         cross join lateral (select BYTES as bytes offset 0) p
         cross join lateral (select clock_timestamp() as now where pg_current_xact_id() is not null) n  -- in this order, see enqueue_bytes
         where t.name = enqueue.tenant and t.removing_at is null and leasehold.my_tenants() is null and octet_length(p.bytes) <= 16777216
           and exists (select from leasehold.tenant_lanes a where a.queue = enqueue.queue and a.tenant_id = t.tenant_id and a.priority = enqueue.priority)
        returning j.id, j.run_at <= j.enqueued_at and exists (select from leasehold.sleepers s where s.queue = j.queue and s.until > j.enqueued_at)
             into v_id, v_wanted;
        if v_wanted then
            perform leasehold.wake(queue);
        end if;
        if v_id is not null then
            return v_id;
        end if;
    end if;
    return leasehold.enqueue_bytes(module, BYTES, tenant, queue, priority, run_at, max_attempts, timeout, backoff, version, concurrency_key,
        concurrency_limit, rate_key, unique_key, unique_for, on_conflict, expires_at, after, after_group, on_dead, group_id, backoff_factor,
        backoff_cap, backoff_jitter, notify);
end $$;
$text$;
begin
    execute replace(replace(c_text, 'PAYLOAD', $t$jsonb default '{}'$t$), 'BYTES', $t$convert_to(enqueue.payload::text, 'UTF8')$t$);
    execute replace(replace(c_text, 'PAYLOAD', 'text'), 'BYTES', $t$convert_to(enqueue.payload::jsonb::text, 'UTF8')$t$);
    execute replace(replace(c_text, 'PAYLOAD', 'bytea'), 'BYTES', 'enqueue.payload');
end $make$;
