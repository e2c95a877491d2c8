-- Keeps a sealed secret of a tenant, a new one or in the place of the one with its name. With p_replaces, the nonce of what was read before, only
-- while that is what is there: sealing anew under another key must not undo somebody's change. Called by `leasehold secret`; the value and
-- the key are never seen here. Answers whether it was written. LH001: no such tenant. LH003: a bad name.
create or replace function leasehold.set_secret(p_tenant text, p_name text, p_key_id text, p_nonce bytea, p_sealed bytea, p_replaces bytea default null)
returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_tenant_id int := (leasehold.scope(p_tenant, null)).tenant_id;
begin
    if p_name is null or p_name !~ '^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$' then
        raise exception 'secret name % is not 1 to 63 letters, digits, "_", "." and "-"', coalesce(quote_literal(left(p_name, 80)), 'null')
            using errcode = 'LH003';
    end if;
    if p_replaces is null then
        insert into leasehold.secrets as s (tenant_id, name, key_id, nonce, sealed) values (v_tenant_id, p_name, p_key_id, p_nonce, p_sealed)
            on conflict on constraint secrets_pkey do update
               set key_id = excluded.key_id, nonce = excluded.nonce, sealed = excluded.sealed, updated_at = now();
    else
        update leasehold.secrets s set key_id = p_key_id, nonce = p_nonce, sealed = p_sealed
         where s.tenant_id = v_tenant_id and s.name = p_name and s.nonce = p_replaces;
    end if;
    return found;
end $$;
