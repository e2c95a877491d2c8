-- What a worker has to do about schedules now. Called by any worker, as often as it likes: changes nothing. A
-- schedule that somebody holds locked is passed over, and so keeps no other from being seen.
-- Answers at most p_limit schedules that are due, or whose next fire is yet to be computed, none of them paused or held; and
-- before them always one row without a schedule (schedule_id null) with wait_ms: milliseconds until the next one is due, null
-- when none is. Whether something is due is judged here, by this server's clock, which now carries.
create or replace function leasehold.due_schedules(p_limit int)
returns table (
    schedule_id bigint, tenant text, name text, cron text, time_zone text, next_fire timestamptz, spread_offset_ms int, missed text,
    missed_limit int, now timestamptz, wait_ms bigint
)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
-- The index in its order, whatever the statistics say of a table that has just been filled: the work of a look is what it answers, and
-- a little for each schedule that is held.
set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
    v_due record;
    v_module text;
    v_held jsonb := '{}';  -- by module, since one may have any number of schedules
begin
    now := clock_timestamp();
    select ceil(extract(epoch from min(s.look_at) - now) * 1000) into wait_ms from leasehold.timetable s where not s.paused and s.look_at > now;
    return next;
    wait_ms := null;
    for v_due in
        select s.schedule_id, s.tenant_id, s.module from leasehold.timetable s
         where not s.paused and s.look_at <= now order by s.look_at, s.schedule_id
    loop
        exit when p_limit <= 0;
        v_module := v_due.tenant_id || ' ' || v_due.module;
        if not v_held ? v_module then
            v_held := v_held || jsonb_build_object(v_module, leasehold.schedule_is_held(v_due.tenant_id,
                (select m.module_id from leasehold.modules m where m.tenant_id = v_due.tenant_id and m.name = v_due.module)));
        end if;
        continue when (v_held -> v_module)::boolean;
        select s.schedule_id, t.name, s.name, s.cron, s.time_zone, s.next_fire, s.spread_offset_ms, s.missed, s.missed_limit
          into schedule_id, tenant, name, cron, time_zone, next_fire, spread_offset_ms, missed, missed_limit
          from leasehold.timetable s join leasehold.tenants t on t.tenant_id = s.tenant_id
         where s.schedule_id = v_due.schedule_id and not s.paused and s.look_at <= now
           for update of s skip locked;
        continue when not found;
        return next;
        p_limit := p_limit - 1;
    end loop;
end $$;
