-- Changes nothing. The id of the tenant of that name, for whoever may act for it at a level (my_tenants). LH001: there is none, or it is somebody
-- else's: the answer is the same. 42501: it was granted at the level of producer only.
create or replace function leasehold.find_tenant(p_tenant text, p_least text) returns int
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    v_mine int[] := leasehold.my_tenants(p_least);
    v_tenant_id int;
begin
    select t.tenant_id into v_tenant_id from leasehold.tenants t where t.name = p_tenant;
    if v_tenant_id is null or not coalesce(v_tenant_id = any(v_mine), true) then
        if v_tenant_id = any(leasehold.my_tenants('producer')) then
            raise exception 'this role may only enqueue for tenant %', quote_literal(p_tenant)
                using errcode = 'insufficient_privilege', hint = 'the operator grants more with: leasehold tenant grant TENANT ROLE --level tenant';
        end if;
        perform leasehold.no_tenant(p_tenant);
    end if;
    return v_tenant_id;
end $$;
