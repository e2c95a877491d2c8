-- Secrets as they are kept, still sealed: a tenant's with these names, for a worker about to run a module that was granted them; with null for
-- either, all, for sealing them anew.
create or replace function leasehold.sealed_secrets(p_tenant_id int, p_names text[])
returns table (tenant text, name text, key_id text, nonce bytea, sealed bytea)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select t.name, s.name, s.key_id, s.nonce, s.sealed
      from leasehold.secrets s join leasehold.tenants t on t.tenant_id = s.tenant_id
     where (p_tenant_id is null or s.tenant_id = p_tenant_id) and (p_names is null or s.name = any(p_names))
     order by t.name, s.name
$$;
