-- Lets the claims look at these gates again, and wakes the workers of the queues that have jobs there. The caller holds the gates.
create or replace function leasehold.open_gates(p_gate_ids bigint[]) returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
    v_queue text;
begin
    for v_queue in
        with opened as (
            update leasehold.gate_lines l set opens_at = clock_timestamp() where l.gate_id = any(p_gate_ids) and l.opens_at > clock_timestamp() returning l.queue
        )
        select distinct o.queue from opened o
    loop
        perform leasehold.wake(v_queue);
    end loop;
end $$;
