-- A job that took a place of its tenant's quota has left live_jobs, whichever way: it gives it back. A trigger, so that no way is forgotten; jobs of
-- tenants without a quota are none of its business, and cost one look at a column.
create or replace function leasehold.return_quota() returns trigger
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
    insert into leasehold.quota_returns values (old.tenant_id, 1, octet_length(old.payload));
    return null;
end $$;
