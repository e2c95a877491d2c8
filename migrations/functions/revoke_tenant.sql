-- A role may act for a tenant no more; where that was its last one, it is no member of leasehold_tenant any more. Called by the schema's
-- owner. Answers whether it could. LH001: no such tenant.
create or replace function leasehold.revoke_tenant(tenant text, role text) returns boolean
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
    v_tenant_id int := leasehold.find_tenant(tenant, 'tenant');
    v_revoked boolean;
begin
    delete from leasehold.tenant_roles r where r.tenant_id = v_tenant_id and r.role_name = role;
    v_revoked := found;
    if v_revoked and not exists (select from leasehold.tenant_roles r where r.role_name = role) and to_regrole(quote_ident(role)) is not null then
        execute format('revoke leasehold_tenant from %I', role);
    end if;
    return v_revoked;
end $$;
