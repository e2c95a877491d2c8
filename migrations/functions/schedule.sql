-- Creates a schedule or replaces the one of that name. Called by producers, in their own transaction. Answers nothing: there
-- is no id but the name. Whoever calls it anew at each deploy loses no fire: with the same cron and time zone the next fire
-- stays as it was, and a paused schedule stays paused unless told otherwise. Otherwise a worker computes the next fire from now on,
-- within seconds.
--
-- Three overloads, as of enqueue: payload as jsonb, as text that holds JSON (an untyped literal lands here), and as bytea.
-- Refusals: LH001 no such tenant, LH002 no such module or version, LH003 a bad argument.

-- The one place that writes one. p_paused null: as it is.
create or replace function leasehold.schedule_bytes(
    p_name text, p_cron text, p_module text, p_payload bytea, p_tenant text, p_time_zone text, p_queue text, p_priority int,
    p_max_attempts int, p_timeout interval, p_backoff interval, p_version int, p_missed text, p_missed_limit int,
    p_spread interval, p_time_key text, p_paused boolean
) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_job record;
    v_cron text;
    v_spread_ms int;
    v_offset_ms int;
begin
    if p_name is null or p_name !~ '^[a-z0-9][a-z0-9_.-]{0,62}$' then
        raise exception 'schedule name % is not 1 to 63 characters of a-z, 0-9, "_", "." and "-"', coalesce(quote_literal(left(p_name, 80)), 'null')
            using errcode = 'LH003';
    end if;
    v_cron := leasehold.check_cron(p_cron);
    -- Looking through all zones takes a while, and most use this one.
    if p_time_zone is distinct from 'UTC' and not exists (select from pg_catalog.pg_timezone_names z where z.name = p_time_zone) then
        raise exception 'no time zone is named %', coalesce(quote_literal(left(p_time_zone, 80)), 'null')
            using errcode = 'LH003', hint = 'write it as in pg_timezone_names, for instance Europe/Berlin';
    end if;
    -- Whatever an enqueue would refuse later is refused now.
    perform leasehold.find_tenant(p_tenant, 'tenant');
    v_job := leasehold.check_enqueue(p_module, p_tenant, p_queue, p_priority, p_max_attempts, p_timeout, p_backoff, p_version);
    if p_payload is null then
        raise exception 'payload is null' using errcode = 'LH003', hint = 'leave the argument out for an empty JSON object';
    elsif octet_length(p_payload) > 1048576 then
        raise exception 'payload of % bytes exceeds the limit of 1048576 bytes for a schedule', octet_length(p_payload)
            using errcode = 'LH003', hint = 'store it elsewhere and pass where';
    elsif p_missed is null or p_missed not in ('skip', 'once', 'all') then
        raise exception 'missed % is not one of skip, once and all', coalesce(quote_literal(left(p_missed, 80)), 'null') using errcode = 'LH003';
    elsif p_missed_limit is null or p_missed_limit not between 1 and 1000 then
        raise exception 'missed_limit % is outside 1 to 1000', coalesce(p_missed_limit::text, 'null') using errcode = 'LH003';
    elsif p_time_key is not null then
        if length(p_time_key) not between 1 and 63 then
            raise exception 'time_key of % characters is outside 1 to 63', length(p_time_key) using errcode = 'LH003';
        elsif jsonb_typeof(leasehold.as_json(p_payload)) is distinct from 'object' then
            raise exception 'payload is not a JSON object, which a time_key asks for'
                using errcode = 'LH003', hint = 'the nominal time is put into the payload under that key';
        end if;
    end if;
    v_spread_ms := leasehold.milliseconds('spread', coalesce(p_spread, interval '0'), 0);
    -- By the names, so that it stays the same when the schedule is made anew.
    if v_spread_ms > 0 then
        v_offset_ms := ('x' || left(md5(v_job.tenant_id || ' ' || p_name), 7))::bit(28)::int % v_spread_ms;
    else
        v_offset_ms := 0;
    end if;
    insert into leasehold.timetable as s
           (tenant_id, name, cron, time_zone, module, queue, priority, max_attempts, timeout, backoff, version, time_key, missed, missed_limit,
            spread_ms, spread_offset_ms, paused, look_at, payload)
    values (v_job.tenant_id, p_name, v_cron, p_time_zone, p_module, p_queue, p_priority, p_max_attempts, p_timeout, p_backoff, p_version,
            p_time_key, p_missed::leasehold.missed_policy, p_missed_limit, v_spread_ms, v_offset_ms, coalesce(p_paused, false),
            clock_timestamp(), p_payload)
    on conflict on constraint timetable_name_is_unique_in_its_tenant do update
       set cron = excluded.cron, time_zone = excluded.time_zone, module = excluded.module, queue = excluded.queue, priority = excluded.priority,
           max_attempts = excluded.max_attempts, timeout = excluded.timeout, backoff = excluded.backoff, version = excluded.version,
           time_key = excluded.time_key, missed = excluded.missed, missed_limit = excluded.missed_limit, spread_ms = excluded.spread_ms,
           spread_offset_ms = excluded.spread_offset_ms, paused = coalesce(p_paused, s.paused), payload = excluded.payload,
           next_fire = case when (s.cron, s.time_zone) = (excluded.cron, excluded.time_zone) then s.next_fire end,
           look_at = excluded.look_at, refusals = 0, error = null, error_at = null, updated_at = clock_timestamp();
end $$;

create or replace function leasehold.schedule(
    name text, cron text, module text, payload jsonb default '{}', tenant text default 'default', time_zone text default 'UTC',
    queue text default 'default', priority int default 0, max_attempts int default 5, timeout interval default null,
    backoff interval default null, version int default null, missed text default 'once', missed_limit int default 100,
    spread interval default null, time_key text default null, paused boolean default null
) returns void
language sql volatile
return leasehold.schedule_bytes(name, cron, module, convert_to(payload::text, 'UTF8'), tenant, time_zone, queue, priority, max_attempts, timeout,
                                backoff, version, missed, missed_limit, spread, time_key, paused);

create or replace function leasehold.schedule(
    name text, cron text, module text, payload text, tenant text default 'default', time_zone text default 'UTC',
    queue text default 'default', priority int default 0, max_attempts int default 5, timeout interval default null,
    backoff interval default null, version int default null, missed text default 'once', missed_limit int default 100,
    spread interval default null, time_key text default null, paused boolean default null
) returns void
language sql volatile
return leasehold.schedule_bytes(name, cron, module, convert_to(payload::jsonb::text, 'UTF8'), tenant, time_zone, queue, priority, max_attempts, timeout,
                                backoff, version, missed, missed_limit, spread, time_key, paused);

create or replace function leasehold.schedule(
    name text, cron text, module text, payload bytea, tenant text default 'default', time_zone text default 'UTC',
    queue text default 'default', priority int default 0, max_attempts int default 5, timeout interval default null,
    backoff interval default null, version int default null, missed text default 'once', missed_limit int default 100,
    spread interval default null, time_key text default null, paused boolean default null
) returns void
language sql volatile
return leasehold.schedule_bytes(name, cron, module, payload, tenant, time_zone, queue, priority, max_attempts, timeout,
                                backoff, version, missed, missed_limit, spread, time_key, paused);
