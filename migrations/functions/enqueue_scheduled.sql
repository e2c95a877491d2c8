-- - -> queued, of one schedule: the one place that turns a schedule into a job. Called by fire_schedules and fire_schedule.
-- p_nominal goes into the payload where the schedule has a time_key. Answers the job's id. Refusals are those of enqueue.
create or replace function leasehold.enqueue_scheduled(p_schedule leasehold.timetable, p_nominal timestamptz) returns bigint
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
    v_payload bytea := p_schedule.payload;
begin
    if p_schedule.time_key is not null then
        v_payload := convert_to((leasehold.as_json(v_payload) || jsonb_build_object(p_schedule.time_key,
                                     to_char(p_nominal at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')))::text, 'UTF8');
    end if;
    return leasehold.enqueue(
        module => p_schedule.module, payload => v_payload::bytea,
        tenant => (select t.name from leasehold.tenants t where t.tenant_id = p_schedule.tenant_id),
        queue => p_schedule.queue, priority => p_schedule.priority, max_attempts => p_schedule.max_attempts,
        timeout => p_schedule.timeout, backoff => p_schedule.backoff, version => p_schedule.version);
end $$;
