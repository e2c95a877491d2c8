-- Pauses a queue (of all tenants), a tenant, or a tenant's module: none of its jobs is begun until it is resumed; running ones go
-- on. Schedules of a paused tenant or module are held too. Answers whether that changed anything. LH001, LH002: no such tenant or
-- module. LH003: not exactly one of a queue and a tenant.
create or replace function leasehold.pause(queue text default null, tenant text default null, module text default null, reason text default null) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_scope record;
begin
    if (queue is null) = (tenant is null) or (module is not null and tenant is null) then
        raise exception 'pause takes a queue, or a tenant, or a tenant and a module' using errcode = 'LH003';
    elsif octet_length(reason) > 1000 then
        raise exception 'reason of % bytes exceeds the limit of 1000 bytes', octet_length(reason) using errcode = 'LH003';
    elsif queue is not null then
        if queue !~ '^[a-z0-9][a-z0-9_.-]{0,62}$' then
            raise exception 'queue name % is not 1 to 63 characters of a-z, 0-9, "_", "." and "-"', quote_literal(left(queue, 80)) using errcode = 'LH003';
        end if;
        insert into leasehold.paused_queues (queue, paused_by, reason) values (pause.queue, session_user, pause.reason) on conflict do nothing;
        return found;
    end if;
    v_scope := leasehold.scope(tenant, module);
    insert into leasehold.gates as g (tenant_id, kind, module_id, paused_at, reason)
    values (v_scope.tenant_id, 'pause', v_scope.module_id, now(), coalesce(pause.reason, 'paused by ' || session_user))
        on conflict on constraint gates_one_of_a_kind do update set paused_at = excluded.paused_at, reason = excluded.reason where g.paused_at is null;
    return found;
end $$;
