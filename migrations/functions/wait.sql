-- Changes nothing. Waits until a job has ended, timeout at most, and answers its state: done, dead or cancelled, or queued or running
-- when the time was up. Looks every 10 ms at first and every quarter of a second in the end. Call it outside of the
-- transaction that enqueued: until that has committed nobody runs the job. LH003: a timeout outside 0 to an hour, or a job of
-- this very transaction. LH004: there is no such job.
create or replace function leasehold.wait(job_id bigint, timeout interval default '30 seconds') returns leasehold.job_state
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_until timestamptz := clock_timestamp() + timeout;
    v_pause float8 := 0.01;
    v_job record;
    v_state leasehold.job_state;
begin
    if timeout is null or extract(epoch from timeout) not between 0 and 3600 then
        raise exception 'timeout % is outside 0 s to 1 hour', timeout using errcode = 'LH003';
    end if;
    perform leasehold.check_job(job_id);
    loop
        select j.running, j.xmin = pg_current_xact_id_if_assigned()::xid as own into v_job from leasehold.live_jobs j where j.id = job_id;
        if not found then
            select h.state into v_state from leasehold.history h where h.id = job_id order by h.finished_at desc limit 1;
            if not found then
                raise exception 'there is no job %', job_id using errcode = 'LH004';
            end if;
            return v_state;
        elsif v_job.own then
            raise exception 'job % was enqueued by this transaction; nobody can run it before the commit', job_id using errcode = 'LH003';
        elsif clock_timestamp() >= v_until then
            return case when v_job.running then 'running' else 'queued' end;
        end if;
        perform pg_sleep(least(v_pause, extract(epoch from v_until - clock_timestamp())));
        v_pause := least(v_pause * 1.5, 0.25);
    end loop;
end $$;
