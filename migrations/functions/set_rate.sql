-- Limits how often jobs of a tenant, of one of its modules, or with a rate_key of that tenant are begun: rate of them each per,
-- and at most burst at once after a quiet time (rate when null). A rate of null takes the limit away. Holds over all workers: a token
-- is taken under a lock. Answers whether there was a limit before. LH001, LH002: no such tenant or module. LH003: a bad number.
create or replace function leasehold.set_rate(
    rate float8, per interval default '1 second', burst int default null, tenant text default 'default', module text default null, key text default null
) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_scope record := leasehold.scope(tenant, module);
    v_per_second float8;
    v_gate record;
begin
    if module is not null and key is not null then
        raise exception 'a rate is of a module or of a key, not of both' using errcode = 'LH003';
    end if;
    perform leasehold.check_key('key', key);
    select g.* into v_gate from leasehold.gates g
     where (g.tenant_id, g.kind, g.module_id, g.name) = (v_scope.tenant_id, 'rate', v_scope.module_id, coalesce(key, '')) for no key update;
    if rate is null then
        -- Whoever waits there goes through, and the row is dropped when it has been quiet.
        if v_gate.gate_id is not null then
            update leasehold.gates g set per_second = 1e9, burst = 1e9, tokens = 1e9 where g.gate_id = v_gate.gate_id;
            perform leasehold.open_gates(array[v_gate.gate_id]);
        end if;
        return v_gate.gate_id is not null and v_gate.per_second < 1e9;
    end if;
    v_per_second := rate / nullif(extract(epoch from per), 0);
    if v_per_second is null or v_per_second not between 1e-6 and 1e6 then
        raise exception 'rate of % each % is outside 1 in 11 days to 1000000 a second', rate, per using errcode = 'LH003';
    end if;
    burst := coalesce(burst, greatest(1, least(ceil(rate), 1e6))::int);
    if burst not between 1 and 1000000 then
        raise exception 'burst % is outside 1 to 1000000', burst using errcode = 'LH003';
    end if;
    insert into leasehold.gates as g (tenant_id, kind, module_id, name, per_second, burst, tokens, refilled_at)
    values (v_scope.tenant_id, 'rate', v_scope.module_id, coalesce(key, ''), v_per_second, set_rate.burst, set_rate.burst, clock_timestamp())
        on conflict on constraint gates_one_of_a_kind do update
       set per_second = excluded.per_second, burst = excluded.burst, tokens = least(g.tokens, excluded.burst);
    if v_gate.gate_id is not null then
        perform leasehold.open_gates(array[v_gate.gate_id]);
    end if;
    return v_gate.gate_id is not null and v_gate.per_second < 1e9;
end $$;
