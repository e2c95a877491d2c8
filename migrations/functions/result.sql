-- The result of a job that is done, as JSON (as_json). LH004: there is no such job. LH007: it has not ended yet, or ended otherwise; the
-- message says how.
create or replace function leasehold.result(job_id bigint) returns jsonb
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_job record;
begin
    perform leasehold.check_job(job_id);
    select h.state, h.error, h.result into v_job from leasehold.history h where h.id = job_id order by h.finished_at desc limit 1;
    if not found then
        if exists (select from leasehold.live_jobs j where j.id = job_id) then
            raise exception 'job % has not ended', job_id using errcode = 'LH007', hint = 'wait for it with: leasehold.wait(id, timeout)';
        end if;
        raise exception 'there is no job %', job_id using errcode = 'LH004';
    elsif v_job.state <> 'done' then
        raise exception 'job % is %: %', job_id, v_job.state, coalesce(v_job.error, 'it was cancelled') using errcode = 'LH007';
    end if;
    return leasehold.as_json(v_job.result);
end $$;
