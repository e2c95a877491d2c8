-- Changes nothing. The names of the tenants that whoever is asking may act for; what the my_ views show is theirs.
create or replace function leasehold.my_tenant_names() returns text[]
language plpgsql stable parallel restricted security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_tenants int[] := leasehold.my_tenants('tenant');
begin
    return array(select t.name from leasehold.tenants t where v_tenants is null or t.tenant_id = any(v_tenants));
end $$;
