-- Makes a version the active one: unpinned jobs that are claimed from now on run it. Null switches the module off: its jobs
-- stay queued. Answers the version that was active before. LH002: no such module or version.
create or replace function leasehold.activate_module(p_tenant text, p_name text, p_version int) returns int
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_module record;
begin
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
    if p_version is not null then
        perform leasehold.wake(q.queue) from (select distinct l.queue from leasehold.lanes l) q;
    end if;
    return v_module.active_version;
end $$;
