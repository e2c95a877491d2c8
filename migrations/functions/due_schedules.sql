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
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set jit = off as $$
declare
    v_now timestamptz := clock_timestamp();
begin
    now := v_now;
    select ceil(extract(epoch from min(s.look_at) - v_now) * 1000) into wait_ms from leasehold.timetable s where not s.paused and s.look_at > v_now;
    return next;
    return query
        with modules as materialized (  -- what holds is asked once a module, however many schedules it has
            select d.tenant_id, d.module
              from (select distinct s.tenant_id, s.module from leasehold.timetable s where not s.paused and s.look_at <= v_now) d
              left join leasehold.modules m on m.tenant_id = d.tenant_id and m.name = d.module
             where not leasehold.schedule_is_held(d.tenant_id, m.module_id)
        )
        select s.schedule_id, t.name::text, s.name::text, s.cron, s.time_zone, s.next_fire, s.spread_offset_ms, s.missed::text, s.missed_limit,
               v_now, null::bigint
          from leasehold.timetable s
          join modules m on m.tenant_id = s.tenant_id and m.module = s.module
          join leasehold.tenants t on t.tenant_id = s.tenant_id
         where not s.paused and s.look_at <= v_now
         order by s.look_at, s.schedule_id limit p_limit
           for update of s skip locked;
end $$;
