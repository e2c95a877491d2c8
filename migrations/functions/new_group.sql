-- A number for a group of jobs: enqueue them with group_id => it, and a job that waits for all of them with after_group => it.
create or replace function leasehold.new_group() returns bigint
language sql volatile security definer set search_path = pg_catalog, pg_temp as $$
    select nextval('leasehold.groups_group_id_seq')
$$;
