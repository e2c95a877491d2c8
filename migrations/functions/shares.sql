-- Changes nothing. What a claimer has to know of shares, asked now and then: whether jobs can be found by their tenant yet, and
-- the tenants whose weight is not 100.
create or replace function leasehold.shares(out ready boolean, out tenant_ids int[], out weights int[])
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
begin
    ready := exists (select from leasehold.sharing);
    select coalesce(array_agg(t.tenant_id), '{}'), coalesce(array_agg(t.weight), '{}') into tenant_ids, weights from leasehold.tenants t where t.weight <> 100;
end $$;
