-- Removes a tenant with all its data, a bounded piece a call, each in a transaction of its own: call again, with what it answered, until done.
-- Called by the schema's owner. The first call (from_id null) shuts the tenant: nothing is enqueued or begun for it any more. Refused (LH005) then
-- while jobs of it run, unless force, which cancels them; they are waited for. The others go through the job ids by so many
-- at a time. A pass that found nothing (clean) while nothing ran, and while every transaction that had begun before has ended, is the last: then the
-- rest goes, and the tenant. LH001: no such tenant.
create or replace function leasehold.remove_tenant(
    tenant text, force boolean default false, from_id bigint default null, clean boolean default false, max_ids int default 50000,
    out next_id bigint, out removed bigint, out running bigint, out done boolean
)
language plpgsql volatile set search_path = pg_catalog, pg_temp set jit = off as $$
declare
    v_tenant record;
    v_running bigint[];
    v_ids bigint[];
    v_table record;
    v_rows bigint;
begin
    done := false; removed := 0;
    select t.* into v_tenant from leasehold.tenants t where t.name = tenant for no key update;
    if not found then
        perform leasehold.no_tenant(tenant);
    end if;
    if v_tenant.removing_at is null then
        update leasehold.tenants t set removing_at = now() where t.tenant_id = v_tenant.tenant_id;
        perform leasehold.pause(tenant => remove_tenant.tenant, reason => 'it is being removed');
    elsif v_tenant.removing_xid is null then
        update leasehold.tenants t set removing_xid = pg_current_xact_id() where t.tenant_id = v_tenant.tenant_id;
    end if;
    v_running := array(select j.id from leasehold.claims c, unnest(c.job_ids) i join leasehold.live_jobs j on j.id = i and j.running
                        where j.tenant_id = v_tenant.tenant_id order by 1);
    running := cardinality(v_running);
    if running > 0 and force then
        v_ids := array(select j.id from leasehold.live_jobs j where j.id = any(v_running) and not j.cancel_requested for no key update skip locked);
        update leasehold.live_jobs j set cancel_requested = true where j.id = any(v_ids) and j.running;
        perform pg_notify('leasehold_cancel', i::text) from unnest(v_ids) i;
    elsif running > 0 and v_tenant.removing_at is null then
        raise exception '% jobs of tenant % are running', running, quote_literal(tenant)
            using errcode = 'LH005', hint = 'let them end after: leasehold tenant pause TENANT; --force cancels them';
    end if;
    if from_id is null or v_tenant.removing_xid is null then
        next_id := 0;
        return;
    end if;

    if from_id <= (select s.last_value from leasehold.live_jobs_id_seq s) then
        -- By ranges of ids, not by the tenant, which no index names: what bounds a call is what it looks at.
        next_id := from_id + max_ids;
        with gone as (
            delete from leasehold.live_jobs j
             where j.id = any(array(select i.id from leasehold.live_jobs i where i.id >= from_id and i.id < next_id and i.tenant_id = v_tenant.tenant_id
                                       and not i.running for update skip locked))
            returning j.*
        ), lines as (
            delete from leasehold.waiting_jobs w using gone g
             where (w.gate_id, w.queue, w.priority, w.due_at, w.job_id) = (g.waits_at, g.queue, g.priority, g.due_at, g.id)
        ), waits as (
            delete from leasehold.dependencies d using gone g where d.job_id = g.id
        ), members as (
            delete from leasehold.group_members m using gone g where (m.group_id, m.job_id) = ((g.options ->> 'group_id')::bigint, g.id)
        ), ends as (
            delete from leasehold.expiries e using gone g where (e.expires_at, e.job_id) = (g.expires_at, g.id)
        )
        select count(*) into removed from gone;
        with gone as (
            delete from leasehold.history h where h.id >= from_id and h.id < next_id and h.tenant_id = v_tenant.tenant_id returning h.id, h.options
        ), members as (
            delete from leasehold.group_members m using gone g where (m.group_id, m.job_id) = ((g.options ->> 'group_id')::bigint, g.id)
        )
        select removed + count(*) into removed from gone;
        delete from leasehold.attempts a where a.job_id >= from_id and a.job_id < next_id and a.tenant_id = v_tenant.tenant_id;
        get diagnostics v_rows = row_count;
        removed := removed + v_rows;
        return;
    end if;

    -- The end of a pass. Whatever has the tenant's number and no job's goes now, also what a later version adds.
    for v_table in
        select c.oid::regclass as name from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attname = 'tenant_id'
         where c.relnamespace = 'leasehold'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
           and c.relname not in ('tenants', 'modules', 'module_versions', 'module_bytes', 'live_jobs', 'history', 'attempts', 'gates', 'quota_slots', 'tenant_roles')
    loop
        execute format('delete from %s d where d.ctid = any(array(select i.ctid from %s i where i.tenant_id = $1 limit $2))', v_table.name, v_table.name)
          using v_tenant.tenant_id, max_ids;
        get diagnostics v_rows = row_count;
        removed := removed + v_rows;
    end loop;
    delete from leasehold.gates g
     where g.gate_id in (select i.gate_id from leasehold.gates i where i.tenant_id = v_tenant.tenant_id and i.kind <> 'pause' and i.running = 0 limit max_ids);
    get diagnostics v_rows = row_count;
    removed := removed + v_rows;
    if removed > 0 or running > 0 or not clean or pg_snapshot_xmin(pg_current_snapshot()) <= v_tenant.removing_xid then
        return;
    end if;
    -- Uploads can be large, so some a call.
    for v_table in select m.module_id from leasehold.modules m where m.tenant_id = v_tenant.tenant_id order by m.module_id limit 100 loop
        update leasehold.modules m set active_version = null where m.module_id = v_table.module_id;
        delete from leasehold.modules m where m.module_id = v_table.module_id;  -- and its versions
        removed := removed + 1;
    end loop;
    if removed = 100 then
        return;
    end if;
    delete from leasehold.module_bytes b where b.tenant_id = v_tenant.tenant_id;
    perform leasehold.revoke_tenant(tenant, r.role_name) from leasehold.tenant_roles r where r.tenant_id = v_tenant.tenant_id;
    delete from leasehold.gates g where g.tenant_id = v_tenant.tenant_id;
    delete from leasehold.tenants t where t.tenant_id = v_tenant.tenant_id;
    done := true;
end $$;
