-- Makes a version the active one: unpinned jobs that are claimed from now on run it. Null switches the module off: its jobs
-- stay queued. Answers the version that was active before. LH001, LH002: no such tenant, module or version.
create or replace function leasehold.activate_module(p_tenant text, p_name text, p_version int) returns int
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_module record;
    v_gate_id bigint;
begin
    perform leasehold.find_tenant(p_tenant, 'tenant');
    select m.* into v_module from leasehold.modules m join leasehold.tenants t using (tenant_id)
     where t.name = p_tenant and m.name = p_name for update of m;
    if not found then
        raise exception 'tenant % has no module named %', quote_literal(p_tenant), quote_literal(p_name) using errcode = 'LH002';
    elsif p_version is not null and not exists (
        select from leasehold.module_versions v where v.module_id = v_module.module_id and v.version = p_version) then
        raise exception 'module % of tenant % has no version %', quote_literal(p_name), quote_literal(p_tenant), p_version
            using errcode = 'LH002', hint = 'list its versions with: leasehold module show NAME';
    end if;
    update leasehold.modules m set active_version = p_version where m.module_id = v_module.module_id;
    if p_version is not null and v_module.active_version is null then
        -- Made even where nobody waits: a claim that is just making it is waited for.
        insert into leasehold.gates (tenant_id, kind, module_id) values (v_module.tenant_id, 'off', v_module.module_id) on conflict do nothing;
        select g.gate_id into v_gate_id from leasehold.gates g
         where (g.tenant_id, g.kind, g.module_id, g.name) = (v_module.tenant_id, 'off', v_module.module_id, '') for no key update;
        perform leasehold.open_gates(array[v_gate_id]);
    end if;
    return v_module.active_version;
end $$;
