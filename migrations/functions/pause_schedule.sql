-- A schedule fires no more until it is resumed. Called by producers. Answers whether it was not paused before.
-- LH001: no such tenant. LH020: no such schedule.
create or replace function leasehold.pause_schedule(name text, tenant text default 'default') returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_schedule leasehold.timetable;
begin
    v_schedule := leasehold.find_schedule(name, tenant);
    update leasehold.timetable s set paused = true, updated_at = clock_timestamp() where s.schedule_id = v_schedule.schedule_id and not s.paused;
    return not v_schedule.paused;
end $$;
