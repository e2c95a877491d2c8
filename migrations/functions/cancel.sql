-- queued -> cancelled at once; a running job is asked to stop through its worker's heartbeat (and a NOTIFY, so that it need
-- not wait for one), given a grace period, then interrupted. Answers the state the job is in after the call: cancelled,
-- running (asked), or the end it had reached before. LH004: there is no such job.
create or replace function leasehold.cancel(job_id bigint) returns leasehold.job_state
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_running boolean;
    v_state leasehold.job_state;
begin
    perform leasehold.check_job(job_id);
    select j.running into v_running from leasehold.live_jobs j where j.id = job_id for update;
    if not found then
        select h.state into v_state from leasehold.history h where h.id = job_id order by h.finished_at desc limit 1;
        if not found then
            raise exception 'there is no job %', job_id using errcode = 'LH004';
        end if;
        return v_state;
    elsif v_running then
        update leasehold.live_jobs j set cancel_requested = true where j.id = job_id;
        perform pg_notify('leasehold_cancel', job_id::text);
        return 'running';
    end if;
    perform leasehold.move_to_cancelled(job_id, null, null, null, null, null);
    perform leasehold.after_end(array[job_id], 'cancelled');
    return 'cancelled';
end $$;
