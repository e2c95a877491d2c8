-- Notifies whoever listens on leasehold_ended of the end of jobs that were enqueued with notify => true: "ID STATE". A hint, like
-- each NOTIFY: who needs to know asks leasehold.jobs.
create or replace function leasehold.tell(p_ids bigint[], p_state leasehold.job_state) returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
    if p_ids is not null then
        perform pg_catalog.pg_notify('leasehold_ended', i || ' ' || p_state) from unnest(p_ids) i;
    end if;
end $$;
