-- Refuses (LH004) a job that is no job of a tenant that whoever is asking may act for, as if it were not there. Called first by each function
-- that takes a job's id: before any lock, so that nobody waits for a stranger's. Changes nothing.
create or replace function leasehold.check_job(p_job_id bigint) returns void
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    v_mine int[] := leasehold.my_tenants('tenant');
begin
    if v_mine is not null and not exists (select from leasehold.live_jobs j where j.id = p_job_id and j.tenant_id = any(v_mine))
       and not exists (select from leasehold.history h where h.id = p_job_id and h.tenant_id = any(v_mine)) then
        raise exception 'there is no job %', coalesce(p_job_id::text, 'null') using errcode = 'LH004';
    end if;
end $$;
