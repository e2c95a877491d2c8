-- Refuses a tenant's name with LH001: there is none of that name, or it is not one that this role may act for. To a role that may not act for
-- all, both say the same.
create or replace function leasehold.no_tenant(p_tenant text) returns void
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
    if leasehold.my_tenants() is null then
        raise exception 'no tenant is named %', coalesce(quote_literal(left(p_tenant, 80)), 'null')
            using errcode = 'LH001', hint = 'create it with: leasehold tenant create NAME';
    end if;
    raise exception 'no tenant named % was granted to role %', coalesce(quote_literal(left(p_tenant, 80)), 'null'),
                    coalesce(nullif(current_setting('role'), 'none'), session_user)
        using errcode = 'LH001', hint = 'name one that was, or have the operator run: leasehold tenant grant TENANT ROLE';
end $$;
