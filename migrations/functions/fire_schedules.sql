-- Fires schedules and sets their next fires, in one transaction: a schedule never fires twice for one time, and never goes on
-- without having fired. Called by any worker with what it computed from due_schedules, one element of the arrays a schedule:
--   p_expected  the next_fire it saw. Another one by now (somebody else fired it, or changed it) and nothing happens to it.
--   p_next      the next_fire to go on with
--   p_counts    how many of p_nominals are this schedule's, in order: each becomes a job
--   p_errors    why this worker can compute none: nothing fires, and it is looked at again in an hour (a worker of another version may
--               know a zone that this one does not; what was due is then missed), or when it is changed
-- A schedule that somebody holds locked is left for the next look, as is one that was paused or held meanwhile.
--
-- An enqueue that is refused (its module was removed, a quota is full) holds up no other schedule. The refusal is kept as the
-- schedule's error, and the fire stays due: it is tried again after 5 s, then after twice as long, at last every 5 minutes. When
-- it goes through, the policy for missed fires counts, as after a pause. Of several fires, those before the refused one stay.
--
-- p_bytes bounds the payloads of one call, so that it ends in time whatever a tenant has scheduled: past them, a schedule goes on from
-- the fire that it has come to, and the others are left for the next look.
--
-- Answers the schedules that went on or were refused: how many jobs, the last one's id, and the refusal.
create or replace function leasehold.fire_schedules(
    p_ids bigint[], p_expected timestamptz[], p_next timestamptz[], p_counts int[], p_nominals timestamptz[], p_errors text[], p_bytes bigint
) returns table (schedule_id bigint, fired int, job_id bigint, refusal text)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set jit = off
-- An enqueue that waits for somebody's open transaction is refused for now, instead of making everybody wait.
set lock_timeout = '100ms' as $$
declare
    v_look record;
    v_schedule leasehold.timetable;
    v_from int;
    v_nominal timestamptz;
    v_next timestamptz;
    v_bytes bigint := 0;
    v_cut boolean;
begin
    perform set_config('leasehold.waits', 'no', true);
    for v_look in
        select l.*, sum(coalesce(l.count, 0)) over (order by l.place) - coalesce(l.count, 0) as skip
          from unnest(p_ids, p_expected, p_next, p_counts, p_errors) with ordinality l(id, expected, next, count, error, place)
         order by l.place
    loop
        exit when v_bytes >= p_bytes;
        select s.* into v_schedule from leasehold.timetable s
         where s.schedule_id = v_look.id and not s.paused and s.look_at <= clock_timestamp() and s.next_fire is not distinct from v_look.expected
           for update skip locked;
        continue when not found;
        continue when leasehold.schedule_is_held(v_schedule.tenant_id, (select m.module_id from leasehold.modules m
                                                                        where m.tenant_id = v_schedule.tenant_id and m.name = v_schedule.module));
        schedule_id := v_schedule.schedule_id; fired := 0; job_id := null; refusal := v_look.error;
        if v_look.error is not null then
            update leasehold.timetable s
               set look_at = clock_timestamp() + interval '1 hour', error = left(v_look.error, 2000), error_at = clock_timestamp()
             where s.schedule_id = v_schedule.schedule_id;
            return next;
            continue;
        end if;
        v_next := v_look.next;
        v_from := v_look.skip;
        v_cut := false;
        foreach v_nominal in array p_nominals[v_from + 1 : v_from + coalesce(v_look.count, 0)] loop
            if v_bytes >= p_bytes then
                v_next := v_nominal;
                v_cut := true;
                exit;
            end if;
            v_bytes := v_bytes + octet_length(v_schedule.payload);
            begin
                job_id := leasehold.enqueue_scheduled(v_schedule, v_nominal);
                fired := fired + 1;
            exception when others then
                refusal := sqlerrm;
                v_next := v_nominal;
            end;
            exit when refusal is not null;
        end loop;
        update leasehold.timetable s
           set next_fire = v_next,
               look_at = case when v_cut then clock_timestamp() when refusal is null then v_next + s.spread_offset_ms * interval '1 millisecond'
                              else clock_timestamp() + least(interval '5 seconds' * power(2, least(s.refusals, 10)), interval '5 minutes') end,
               refusals = case when refusal is null then 0 else s.refusals + 1 end,
               error = left(refusal, 2000), error_at = case when refusal is not null then clock_timestamp() end,
               last_fire = case when fired > 0 then p_nominals[v_from + fired] else s.last_fire end,
               last_fired_at = case when fired > 0 then clock_timestamp() else s.last_fired_at end,
               last_job_id = case when fired > 0 then job_id else s.last_job_id end
         where s.schedule_id = v_schedule.schedule_id;
        return next;
    end loop;
end $$;
