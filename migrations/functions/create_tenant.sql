-- Makes a tenant. Called by the schema's owner. Answers whether it was not there before. LH003: a bad name.
create or replace function leasehold.create_tenant(tenant text) returns boolean
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
    if tenant is null or tenant !~ '^[a-z0-9][a-z0-9_.-]{0,62}$' then
        raise exception 'tenant name % is not 1 to 63 characters of a-z, 0-9, "_", "." and "-"', coalesce(quote_literal(left(tenant, 80)), 'null')
            using errcode = 'LH003';
    end if;
    insert into leasehold.tenants (name) values (tenant) on conflict (name) do nothing;
    return found;
end $$;
