-- Lets a database role act for a tenant: at the level of tenant (enqueue, see, cancel, redrive and wait for its jobs, set its schedules, upload
-- and activate its modules) or of producer (enqueue). Called by the schema's owner. With through_functions the role itself may call
-- nothing; SECURITY DEFINER functions of roles that may enqueue act for the tenant when it calls them. With create_role a
-- login role without a password is made where there is none. Answers whether that changed anything.
-- LH001: no such tenant. LH003: another level, no such role, or one that may act for all tenants.
create or replace function leasehold.grant_tenant(tenant text, role text, level text default 'tenant', through_functions boolean default false, create_role boolean default false)
returns boolean
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
    v_tenant_id int := leasehold.find_tenant(tenant, 'tenant');
    v_oid oid;
    v_all text;
begin
    if level is null or level not in ('tenant', 'producer') then
        raise exception 'level % is neither tenant nor producer', coalesce(quote_literal(left(level, 80)), 'null') using errcode = 'LH003';
    elsif to_regrole('leasehold_tenant') is null then
        raise exception 'there is no role leasehold_tenant' using errcode = 'LH003', hint = 'have an administrator create it, and run: leasehold migrate';
    end if;
    select r.oid into v_oid from pg_roles r where r.rolname = role;
    if not found then
        if not create_role then
            raise exception 'no role is named %', coalesce(quote_literal(left(role, 80)), 'null') using errcode = 'LH003', hint = 'create it, or pass create_role => true';
        end if;
        execute format('create role %I login', role);
        select r.oid into v_oid from pg_roles r where r.rolname = role;
    end if;
    select r.rolname into v_all from pg_roles r
     where r.oid in (to_regrole('leasehold_producer'), to_regrole('leasehold_worker'), (select n.nspowner from pg_namespace n where n.nspname = 'leasehold'))
       and pg_has_role(v_oid, r.oid, 'member') limit 1;
    if found then
        raise exception 'role % may act for all tenants, as % may', quote_literal(role), v_all
            using errcode = 'LH003', hint = 'revoke that from it first, or grant the tenant to another role';
    end if;
    if not through_functions and not pg_has_role(v_oid, 'leasehold_tenant', 'member') then
        execute format('grant leasehold_tenant to %I', role);
    end if;
    delete from leasehold.tenant_roles r where r.tenant_id = v_tenant_id and r.role_name = role and r.role_oid <> v_oid;
    insert into leasehold.tenant_roles as r (tenant_id, role_oid, role_name, level) values (v_tenant_id, v_oid, role, grant_tenant.level)
        on conflict on constraint tenant_roles_pkey do update set level = excluded.level, role_name = excluded.role_name, granted_at = now()
     where (r.level, r.role_name) <> (excluded.level, excluded.role_name);
    return found;
end $$;
