-- Uploads a version of a module, makes the module when it is new, and makes the version the active one unless told not to.
-- The same bytes with the same settings as the newest version answer that version again. Answers the version's number.
-- LH001: no such tenant. LH003: a bad name or setting. LH032, LH033, LH034: more than the tenant's quotas or ceilings leave room for.
drop function if exists leasehold.push_module(text, text, text, bytea, bigint, bigint, int, bigint, int, jsonb, text[], boolean);
create or replace function leasehold.push_module(
    p_tenant text, p_name text, p_kind text, p_bytes bytea, p_fuel bigint, p_memory_bytes bigint, p_timeout_ms int,
    p_result_bytes bigint, p_log_bytes int, p_on_failure jsonb, p_imports text[], p_activate boolean, p_retry jsonb default '{}', p_follow_ups int default 0,
    out version int, out created boolean
)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_tenant_id int := leasehold.find_tenant(p_tenant, 'tenant');
    v_module record;
    v_newest record;
    v_digest bytea := sha256(p_bytes);
begin
    if p_name is null or p_name !~ '^[a-z0-9][a-z0-9_.-]{0,62}$' then
        raise exception 'module name % is not 1 to 63 characters of a-z, 0-9, "_", "." and "-"', coalesce(quote_literal(left(p_name, 80)), 'null')
            using errcode = 'LH003';
    end if;
    insert into leasehold.modules (tenant_id, name) values (v_tenant_id, p_name)
        on conflict on constraint modules_name_is_unique_in_its_tenant do nothing;
    -- The lock makes concurrent uploads of one module take turns for their version numbers.
    select m.* into v_module from leasehold.modules m where m.tenant_id = v_tenant_id and m.name = p_name for update;
    select v.* into v_newest from leasehold.module_versions v where v.module_id = v_module.module_id order by v.version desc limit 1;
    if found and (v_newest.digest, v_newest.fuel, v_newest.memory_bytes, v_newest.timeout_ms, v_newest.result_bytes, v_newest.log_bytes, v_newest.on_failure, v_newest.retry, v_newest.follow_ups)
               = (v_digest, p_fuel, p_memory_bytes, p_timeout_ms, p_result_bytes, p_log_bytes, p_on_failure, p_retry, p_follow_ups) then
        version := v_newest.version;
        created := false;
    else
        perform leasehold.check_upload(v_tenant_id, v_digest, octet_length(p_bytes), p_kind, p_fuel, p_memory_bytes, p_timeout_ms, p_result_bytes, p_log_bytes,
                                       p_on_failure, p_imports, p_retry, p_follow_ups);
        insert into leasehold.module_bytes (tenant_id, digest, bytes) values (v_tenant_id, v_digest, p_bytes) on conflict do nothing;
        version := coalesce(v_newest.version, 0) + 1;
        created := true;
        insert into leasehold.module_versions (tenant_id, module_id, version, digest, kind, fuel, memory_bytes, timeout_ms, result_bytes, log_bytes, on_failure, imports, retry, follow_ups)
        values (v_tenant_id, v_module.module_id, push_module.version, v_digest, p_kind::leasehold.module_kind, p_fuel, p_memory_bytes, p_timeout_ms,
                p_result_bytes, p_log_bytes, p_on_failure, p_imports, p_retry, p_follow_ups);
    end if;
    if p_activate and v_newest is null then
        update leasehold.modules m set active_version = push_module.version where m.module_id = v_module.module_id;  -- no job can wait for it
    elsif p_activate then
        perform leasehold.activate_module(p_tenant, p_name, push_module.version);
    end if;
end $$;
