-- Enqueues a schedule's job now, whatever its time; its next fire stays as it is, and a paused schedule paused. Called by
-- producers. The nominal time is the second it is now. Answers the job's id. LH001, LH020: no such tenant, schedule; and the
-- refusals of enqueue.
create or replace function leasehold.fire_schedule(name text, tenant text default 'default') returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_schedule leasehold.timetable;
    v_nominal timestamptz := date_trunc('second', clock_timestamp());
    v_job_id bigint;
begin
    v_schedule := leasehold.find_schedule(name, tenant);
    v_job_id := leasehold.enqueue_scheduled(v_schedule, v_nominal);
    update leasehold.timetable s set last_fire = v_nominal, last_fired_at = clock_timestamp(), last_job_id = v_job_id
     where s.schedule_id = v_schedule.schedule_id;
    return v_job_id;
end $$;
