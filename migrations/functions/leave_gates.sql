-- Frees the places that runs took in gates, one element a place, and lets whoever waits there be looked at. Part of each
-- function that ends a run, in the same transaction. The locks are taken in one order, so settlements cannot block each other;
-- claims never wait for one.
create or replace function leasehold.leave_gates(p_gate_ids bigint[]) returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
begin
    if p_gate_ids is null then
        return;
    end if;
    -- Longer than for a job's row, which a producer may hold: a gate is held by claims and settlements, one after the other.
    perform set_config('lock_timeout', '5s', true);
    perform from leasehold.gates g where g.gate_id = any(p_gate_ids) order by g.gate_id for no key update;
    update leasehold.gates g set running = g.running - n.left_now
      from (select i as gate_id, count(*) as left_now from unnest(p_gate_ids) i group by 1) n
     where g.gate_id = n.gate_id;
    perform leasehold.open_gates(p_gate_ids);
end $$;
