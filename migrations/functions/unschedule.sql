-- Removes a schedule. The jobs that it enqueued stay. Called by producers. Answers whether there was one, so that it can be
-- called again. LH001: no such tenant.
create or replace function leasehold.unschedule(name text, tenant text default 'default') returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_schedule leasehold.timetable;
begin
    v_schedule := leasehold.find_schedule(name, tenant);
    delete from leasehold.timetable s where s.schedule_id = v_schedule.schedule_id;
    return true;
exception
    when sqlstate 'LH020' then
        return false;
end $$;
