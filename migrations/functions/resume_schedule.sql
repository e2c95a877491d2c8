-- A paused schedule fires again. What was due meanwhile is missed, and the schedule's policy says what becomes of it. Called
-- by producers. Answers whether it was paused. LH001: no such tenant. LH020: no such schedule.
create or replace function leasehold.resume_schedule(name text, tenant text default 'default') returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_schedule leasehold.timetable;
begin
    v_schedule := leasehold.find_schedule(name, tenant);
    update leasehold.timetable s set paused = false, updated_at = clock_timestamp() where s.schedule_id = v_schedule.schedule_id and s.paused;
    return v_schedule.paused;
end $$;
