-- Limits how many jobs of a tenant, or of one of its modules, run at once over all workers. Null takes the limit away. Jobs that run
-- already count, but for those whose claim is under way in this very moment. Answers the limit that was before. LH001, LH002: no such tenant or module. LH003: a bad number.
create or replace function leasehold.set_cap(max_running int, tenant text default 'default', module text default null) returns int
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_scope record := leasehold.scope(tenant, module);
    v_gate record;
    v_id bigint;
    v_running int;
begin
    if max_running not between 1 and 1000000 then
        raise exception 'max_running % is outside 1 to 1000000', max_running using errcode = 'LH003', hint = 'to run none, pause it';
    end if;
    select g.* into v_gate from leasehold.gates g
     where (g.tenant_id, g.kind, g.module_id, g.name) = (v_scope.tenant_id, 'cap', v_scope.module_id, '') for no key update;
    if v_gate.gate_id is null then
        if max_running is not null then
            insert into leasehold.gates (tenant_id, kind, module_id, wanted, max) values (v_scope.tenant_id, 'cap', v_scope.module_id, max_running, max_running)
            returning gate_id into v_id;
            -- One that somebody holds is about to end.
            with taken as (
                update leasehold.live_jobs j set held_gates = j.held_gates || v_id
                 where j.id in (select r.id from leasehold.claims c, unnest(c.job_ids) i join leasehold.live_jobs r on r.id = i
                                 where r.running and r.tenant_id = v_scope.tenant_id and v_scope.module_id in (0, r.module_id) for update of r skip locked)
                returning j.id
            )
            select count(*) into v_running from taken;
            update leasehold.gates g set running = v_running, max = greatest(max_running, v_running) where g.gate_id = v_id;
        end if;
        return null;
    end if;
    -- More may be running than the new limit allows: they end in their time, and nobody is begun until then.
    update leasehold.gates g set wanted = coalesce(max_running, 2147483647), max = greatest(coalesce(max_running, 2147483647), g.running)
     where g.gate_id = v_gate.gate_id;
    perform leasehold.open_gates(array[v_gate.gate_id]);
    return nullif(v_gate.wanted, 2147483647);
end $$;
