-- Whether a job may run now; part of claim, which holds the job's row. Through: it takes a token of each rate, and a place in
-- each gate of places. Closed: it is put into the line of the gate that does not let it through, which may be another than the
-- one that it waited at (p_waits_at). Busy: somebody else is at one of its gates; nothing has changed.
create or replace function leasehold.pass_gates(
    p_id bigint, p_tenant_id int, p_module_id int, p_options jsonb, p_queue text, p_priority smallint, p_due_at timestamptz, p_waits_at bigint,
    p_now timestamptz, out verdict text, out gate_id bigint, out places bigint[]
)
language plpgsql volatile set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
    v_limit int := coalesce((p_options ->> 'concurrency_limit')::int, 1);
    v_gate record;
    v_gates bigint[];
    v_passed int := 0;
    v_opens_at timestamptz;
begin
    -- A pause that is over, and a module that is on, are nothing to take turns for.
    select array_agg(g.gate_id) into v_gates from leasehold.gates g
     where g.tenant_id = p_tenant_id
       and ((g.kind = 'key' and g.module_id = 0 and g.name = p_options ->> 'concurrency_key')
         or (g.kind = 'rate' and g.module_id = 0 and g.name = p_options ->> 'rate_key')
         or (g.kind in ('cap', 'rate') and g.module_id in (0, p_module_id) and g.name = '')
         or (g.kind = 'pause' and g.module_id in (0, p_module_id) and g.name = '' and g.paused_at is not null)
         or (g.kind = 'off' and g.module_id = p_module_id and g.name = ''
             and exists (select from leasehold.modules m where m.module_id = p_module_id and m.active_version is null)));
    -- A gate of its own that is not there yet (make_gates makes it) is never passed.
    if (p_options ? 'concurrency_key' and not exists (
            select from leasehold.gates g where (g.tenant_id, g.kind, g.module_id, g.name) = (p_tenant_id, 'key', 0, p_options ->> 'concurrency_key')))
       or (exists (select from leasehold.modules m where m.module_id = p_module_id and m.active_version is null) and not exists (
            select from leasehold.gates g where (g.tenant_id, g.kind, g.module_id, g.name) = (p_tenant_id, 'off', p_module_id, ''))) then
        verdict := 'busy';
        return;
    end if;
    verdict := 'through';
    for v_gate in select g.* from leasehold.gates g where g.gate_id = any(v_gates) for no key update skip locked loop
        v_passed := v_passed + 1;
        v_opens_at := case v_gate.kind
            when 'off' then (select timestamptz 'infinity' from leasehold.modules m where m.module_id = p_module_id and m.active_version is null)
            when 'pause' then case when v_gate.paused_at is not null then timestamptz 'infinity' end
            when 'key' then case when v_gate.running >= v_limit then timestamptz 'infinity' end
            when 'cap' then case when v_gate.running >= v_gate.wanted then timestamptz 'infinity' end
            when 'rate' then leasehold.next_token(v_gate.tokens, v_gate.refilled_at, v_gate.per_second, v_gate.burst, p_now)
        end;
        if v_opens_at > p_now then
            verdict := 'closed';
            gate_id := v_gate.gate_id;
            places := null;
            exit;
        elsif v_gate.kind in ('key', 'cap') then
            places := places || v_gate.gate_id;
        end if;
    end loop;

    if verdict = 'closed' then
        insert into leasehold.gate_lines as l (queue, gate_id, opens_at) values (p_queue, pass_gates.gate_id, v_opens_at)
            on conflict on constraint gate_lines_pkey do update set opens_at = excluded.opens_at where l.opens_at <> excluded.opens_at;
        if p_waits_at is distinct from gate_id then
            delete from leasehold.waiting_jobs w where (w.gate_id, w.queue, w.priority, w.due_at, w.job_id) = (p_waits_at, p_queue, p_priority, p_due_at, p_id);
            insert into leasehold.waiting_jobs values (pass_gates.gate_id, p_queue, p_priority, p_due_at, p_id);
            update leasehold.live_jobs j set run_at = 'infinity', due_at = p_due_at, waits_at = pass_gates.gate_id where j.id = p_id;
        end if;
        return;
    elsif v_passed < coalesce(cardinality(v_gates), 0) then
        verdict := 'busy';
        places := null;
        return;
    end if;
    update leasehold.gates g
       set used_at = p_now,
           running = g.running + (g.kind in ('key', 'cap'))::int,
           max = case when g.kind in ('key', 'cap') then greatest(coalesce(g.wanted, v_limit), g.running) end,
           tokens = leasehold.tokens_at(g.tokens, g.refilled_at, g.per_second, g.burst, p_now) - 1,
           refilled_at = greatest(p_now, g.refilled_at)
     where g.gate_id = any(v_gates) and g.kind in ('key', 'cap', 'rate');
    if p_waits_at is not null then
        delete from leasehold.waiting_jobs w where (w.gate_id, w.queue, w.priority, w.due_at, w.job_id) = (p_waits_at, p_queue, p_priority, p_due_at, p_id);
    end if;
end $$;
