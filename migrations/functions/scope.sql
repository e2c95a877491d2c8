-- The ids of a tenant and, where it is named, of a module of it; 0 for all modules. LH001, LH002: there is none.
create or replace function leasehold.scope(p_tenant text, p_module text, out tenant_id int, out module_id int)
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
    tenant_id := leasehold.find_tenant(p_tenant, 'tenant');
    module_id := 0;
    if p_module is not null then
        select m.module_id into module_id from leasehold.modules m where m.tenant_id = scope.tenant_id and m.name = p_module;
        if not found then
            raise exception 'tenant % has no module named %', quote_literal(p_tenant), quote_literal(left(p_module, 80))
                using errcode = 'LH002', hint = 'upload it with: leasehold module push NAME FILE --tenant TENANT';
        end if;
    end if;
end $$;
