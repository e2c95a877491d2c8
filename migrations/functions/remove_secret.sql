-- Removes a tenant's secret. Modules that were granted it go on without. Answers whether there was one. LH001: no such tenant.
create or replace function leasehold.remove_secret(p_tenant text, p_name text) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_tenant_id int := (leasehold.scope(p_tenant, null)).tenant_id;
begin
    delete from leasehold.secrets s where s.tenant_id = v_tenant_id and s.name = p_name;
    return found;
end $$;
