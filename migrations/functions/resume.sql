-- Ends a pause. Answers whether there was one. LH001, LH002: no such tenant or module. LH003: not exactly one of a queue and a tenant.
create or replace function leasehold.resume(queue text default null, tenant text default null, module text default null) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_scope record;
    v_gate_id bigint;
begin
    if (queue is null) = (tenant is null) or (module is not null and tenant is null) then
        raise exception 'resume takes a queue, or a tenant, or a tenant and a module' using errcode = 'LH003';
    elsif queue is not null then
        delete from leasehold.paused_queues p where p.queue = resume.queue;
        if not found then
            return false;
        end if;
        perform leasehold.wake(queue);
        return true;
    end if;
    v_scope := leasehold.scope(tenant, module);
    update leasehold.gates g set paused_at = null
     where (g.tenant_id, g.kind, g.module_id, g.name) = (v_scope.tenant_id, 'pause', v_scope.module_id, '') and g.paused_at is not null
    returning g.gate_id into v_gate_id;
    if not found then
        return false;
    end if;
    perform leasehold.open_gates(array[v_gate_id]);
    return true;
end $$;
