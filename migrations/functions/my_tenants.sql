-- Changes nothing. The tenants that whoever is asking may act for, at a level: tenant (its jobs, schedules and modules) or producer
-- (enqueue); null where that is all of them. The one place that knows who asks.
--
-- That is the role of the last SET ROLE, or else the login role, whatever SECURITY DEFINER functions lie in between: a tenant can write
-- one of its own and have it called by a session that has no rights here, so what lies in between can vouch for nobody. Neither can be
-- forged: SET ROLE asks for membership, and SET SESSION AUTHORIZATION for a superuser. All tenants are those of the schema's owner, of
-- superusers, and of members of leasehold_producer and leasehold_worker.
create or replace function leasehold.my_tenants(p_least text default 'producer') returns int[]
language plpgsql stable parallel restricted security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_role name := coalesce(nullif(current_setting('role'), 'none'), session_user);
begin
    -- In here the current user is the schema's owner.
    if pg_has_role(v_role, current_user, 'usage') or pg_has_role(v_role, to_regrole('leasehold_producer')::oid, 'usage')
       or pg_has_role(v_role, to_regrole('leasehold_worker')::oid, 'usage') or to_regrole('leasehold_tenant') is null then
        return null;
    end if;
    return array(
        select r.tenant_id from leasehold.tenant_roles r join pg_roles a on a.oid = r.role_oid and a.rolname = r.role_name
         where pg_has_role(v_role, a.oid, 'usage') and (p_least = 'producer' or r.level = 'tenant'));
end $$;
