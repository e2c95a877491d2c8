-- What the runs of a job saved last. Asked by a worker before a run that is not the job's first, for a module that may ask for it. Null
-- where nothing was saved, and for a lease that is lost.
create or replace function leasehold.checkpoint(p_job_id bigint, p_lease_no int) returns bytea
language sql stable security definer set search_path = pg_catalog, pg_temp
as $$
    select n.checkpoint from leasehold.notes n join leasehold.live_jobs j on j.id = n.job_id and j.lease_no = p_lease_no and j.running
     where n.job_id = p_job_id
$$;
