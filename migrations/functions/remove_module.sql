-- Removes a module with all its versions and bytes. Refused (LH005) while jobs of it are queued or running, unless p_force,
-- which cancels the queued ones; running ones refuse it always. History keeps the finished jobs. Answers how many queued
-- jobs were cancelled. LH001, LH002: no such tenant or module.
create or replace function leasehold.remove_module(p_tenant text, p_name text, p_force boolean) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_module record;
    v_queued bigint;
    v_running bigint;
begin
    perform leasehold.find_tenant(p_tenant, 'tenant');
    select m.* into v_module from leasehold.modules m join leasehold.tenants t using (tenant_id)
     where t.name = p_tenant and m.name = p_name for update of m;
    if not found then
        raise exception 'tenant % has no module named %', quote_literal(p_tenant), quote_literal(p_name) using errcode = 'LH002';
    end if;
    select count(*) filter (where not j.running), count(*) filter (where j.running) into v_queued, v_running
      from leasehold.live_jobs j where j.module_id = v_module.module_id;
    if v_running > 0 or (v_queued > 0 and not p_force) then
        raise exception 'module % has % queued and % running jobs', quote_literal(p_name), v_queued, v_running
            using errcode = 'LH005', hint = 'let the running ones end; --force cancels the queued ones';
    end if;
    perform leasehold.move_to_cancelled(j.id, null, null, null, null, null) from leasehold.live_jobs j
     where j.module_id = v_module.module_id and not j.running;
    delete from leasehold.gates g where g.tenant_id = v_module.tenant_id and g.module_id = v_module.module_id;
    update leasehold.modules m set active_version = null where m.module_id = v_module.module_id;
    -- The name stays on the finished jobs, so the row stays, under a name nobody can upload to.
    delete from leasehold.module_versions v where v.module_id = v_module.module_id;
    delete from leasehold.module_bytes b where b.tenant_id = v_module.tenant_id
       and not exists (select from leasehold.module_versions v where v.tenant_id = b.tenant_id and v.digest = b.digest);
    update leasehold.modules m set removed_name = m.name, name = null where m.module_id = v_module.module_id;
    return v_queued;
end $$;
