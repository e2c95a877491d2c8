-- Whether the schedules of a tenant's module wait: nothing of them fires meanwhile, and when it ends, each one's policy for
-- missed fires says what becomes of those that were due. The one place that knows what holds a schedule: its module is
-- switched off, or it or its tenant is paused. A module that does not exist (null) holds nothing: its fire is tried, and refused
-- with a reason. Changes nothing.
-- Null to a role that may not act for the tenant: the view asks in its reader's name.
create or replace function leasehold.schedule_is_held(p_tenant_id int, p_module_id int) returns boolean
language sql stable security definer set search_path = pg_catalog, pg_temp
as $$
    select case when coalesce(p_tenant_id = any(leasehold.my_tenants('tenant')), true) then coalesce((select m.active_version is null from leasehold.modules m where m.module_id = p_module_id and m.tenant_id = p_tenant_id), false)
        or exists (select from leasehold.gates g where g.tenant_id = p_tenant_id and g.kind = 'pause' and g.module_id in (0, p_module_id)
                      and g.name = '' and g.paused_at is not null) end
$$;
