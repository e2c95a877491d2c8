-- Notes that jobs of these tenants' queues wait for what keeps a tenant from running (a pause, its cap, its rate), so that whoever ends that
-- wakes the workers. Part of claim, for tenants that it leaves out (p_most is 0) without touching their jobs. Answers whether all is
-- noted: not where somebody else is at such a gate.
create or replace function leasehold.wait_at_gates(p_tenants int[], p_queues text[], p_most int[], p_now timestamptz) returns boolean
language plpgsql volatile set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
    v_gate record;
    v_missing bigint[];
    v_opens_at timestamptz;
begin
    v_missing := array(
        select distinct g.gate_id from unnest(p_tenants, p_queues, p_most) t(tenant_id, queue, most)
          join leasehold.gates g on g.tenant_id = t.tenant_id and g.module_id = 0 and g.kind <> 'key' and g.name = ''
           and (g.kind in ('cap', 'rate') or g.paused_at is not null)
         where t.most = 0 and not exists (select from leasehold.gate_lines l where l.gate_id = g.gate_id and l.queue = t.queue));
    if cardinality(v_missing) = 0 then
        return true;
    end if;
    for v_gate in select g.* from leasehold.gates g where g.gate_id = any(v_missing) for no key update skip locked loop
        v_missing := array_remove(v_missing, v_gate.gate_id);
        v_opens_at := case
            when v_gate.kind = 'rate' then leasehold.next_token(v_gate.tokens, v_gate.refilled_at, v_gate.per_second, v_gate.burst, p_now)
            when v_gate.kind = 'pause' or v_gate.running >= v_gate.wanted then 'infinity' else p_now end;
        -- One of its gates that is open has nobody waiting at it.
        continue when v_opens_at <= p_now;
        insert into leasehold.gate_lines (queue, gate_id, opens_at)
        select distinct t.queue, v_gate.gate_id, v_opens_at from unnest(p_tenants, p_queues) t(tenant_id, queue) where t.tenant_id = v_gate.tenant_id
            on conflict on constraint gate_lines_pkey do nothing;
    end loop;
    return cardinality(v_missing) = 0;
end $$;
