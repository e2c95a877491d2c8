-- Changes nothing. Why a job is not running: one row for each thing that keeps it from running now, or one that says what it does
-- instead. code is the same word in SQL, the CLI and metrics; until is when that ends, where it is known.
--   done, dead, cancelled, running   it does not wait
--   not_due          its time has not come: scheduled, or between two attempts
--   waits_for_job    another job has to end first
--   queue_paused, tenant_paused, module_paused, module_off
--   at_cap           as many jobs of its tenant or module run as may
--   key_held         as many jobs of its concurrency key run as may; the message names them
--   rate             no token is left; until is when the next comes
--   no_worker        no live worker serves its queue
--   ready            nothing: it is taken when a slot is free and those before it were; the message counts them and estimates, and says
--                    how many other tenants have jobs in its queue
-- LH004: there is no such job.
create or replace function leasehold.explain(job_id bigint) returns table (code text, message text, until timestamptz)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_job record;
    v_now timestamptz := clock_timestamp();
    v_row record;
    v_kept boolean := false;
    v_limit int;
    v_whose text;
    v_ahead bigint;
    v_others bigint;
    v_per_second float8;
begin
    perform leasehold.check_job(job_id);
    select j.*, t.name as tenant, m.name as module, m.active_version, coalesce(j.due_at, j.run_at) as due
      into v_job
      from leasehold.live_jobs j join leasehold.tenants t on t.tenant_id = j.tenant_id join leasehold.modules m on m.module_id = j.module_id
     where j.id = job_id;
    if not found then
        for v_row in select h.state, h.finished_at, h.error from leasehold.history h where h.id = job_id order by h.finished_at desc limit 1 loop
            code := v_row.state; message := format('ended at %s', v_row.finished_at) || coalesce(': ' || v_row.error, '');
            return next;
            return;
        end loop;
        raise exception 'there is no job %', job_id using errcode = 'LH004';
    elsif v_job.running then
        code := 'running';
        select format('attempt %s of %s on worker %s since %s', v_job.attempt, v_job.max_attempts, c.worker_id, v_job.started_at)
               || case when v_job.cancel_requested then '; it was asked to cancel' else '' end
               || case when c.locked_until < v_now then '; its lease has run out and it will be reaped' else '' end
          into message from leasehold.claims c where c.claim_id = v_job.claim_id;
        return next;
        return;
    end if;

    if v_job.due > v_now then
        code := 'not_due'; until := v_job.due;
        message := case when v_job.attempt > 0 then format('attempt %s ended without success; the next is due at %s', v_job.attempt, v_job.due)
                        else format('it is due at %s', v_job.due) end;
        return next; v_kept := true; until := null;
    end if;
    if v_job.waits_at = 0 then
        select count(*) as count, min(d.after_id) as first into v_row from leasehold.dependencies d where d.job_id = explain.job_id;
        code := 'waits_for_job';
        message := format('waits for %s jobs, the first of them is job %s', v_row.count, v_row.first);
        return next; v_kept := true;
    end if;
    for v_row in select p.* from leasehold.paused_queues p where p.queue = v_job.queue loop
        code := 'queue_paused';
        message := format('queue %s was paused by %s at %s', v_row.queue, v_row.paused_by, v_row.paused_at) || coalesce(': ' || v_row.reason, '');
        return next; v_kept := true;
    end loop;
    if v_job.active_version is null then
        code := 'module_off'; message := format('module %s has no active version', v_job.module);
        return next; v_kept := true;
    end if;
    for v_row in
        select g.*, leasehold.next_token(g.tokens, g.refilled_at, g.per_second, g.burst, v_now) as token_at from leasehold.gates g
         where g.tenant_id = v_job.tenant_id
           and ((g.kind = 'key' and g.module_id = 0 and g.name = v_job.options ->> 'concurrency_key')
             or (g.kind = 'rate' and g.module_id = 0 and g.name = v_job.options ->> 'rate_key')
             or (g.kind in ('pause', 'cap', 'rate') and g.module_id in (0, v_job.module_id) and g.name = ''))
         order by g.gate_id
    loop
        until := null;
        v_limit := coalesce(v_row.wanted, (v_job.options ->> 'concurrency_limit')::int, 1);
        code := leasehold.gate_code(v_row.kind, v_row.module_id, v_row.paused_at, v_row.running, v_limit, v_row.token_at, v_now);
        v_whose := case when v_row.module_id = 0 then 'tenant ' || v_job.tenant else 'module ' || v_job.module end;
        case code
            when 'tenant_paused', 'module_paused' then
                message := format('%s was paused at %s: %s', v_whose, v_row.paused_at, v_row.reason);
            when 'at_cap' then
                message := format('%s of %s jobs of %s that may run do', v_row.running, v_limit, v_whose);
            when 'key_held' then
                message := format('%s of %s jobs of concurrency key %s that may run do: %s', v_row.running, v_limit, quote_literal(v_row.name),
                                  (select string_agg('job ' || h.id, ', ') from (
                                      select j.id from leasehold.claims c, unnest(c.job_ids) i join leasehold.live_jobs j on j.id = i and j.running
                                       where v_row.gate_id = any(j.held_gates) order by j.id limit 5) h));
            when 'rate' then
                until := v_row.token_at;
                message := format('%s may begin %s jobs a second and has begun them; the next one may at %s',
                                  case when v_row.name = '' then v_whose else 'rate key ' || quote_literal(v_row.name) end,
                                  round(v_row.per_second::numeric, 6), v_row.token_at);
            else null;
        end case;
        if code is not null then
            return next; v_kept := true; until := null;
        end if;
    end loop;
    if not exists (select from leasehold.workers w where v_job.queue = any(w.queues) and w.seen_at > v_now - interval '1 minute') then
        code := 'no_worker'; message := format('no live worker serves queue %s', v_job.queue);
        return next; v_kept := true;
    end if;
    if not v_kept then
        -- Tenants take turns, so only its own tenant's jobs come before it where others have some.
        select count(distinct a.tenant_id) into v_others from leasehold.tenant_lanes a
         where a.queue = v_job.queue and a.tenant_id <> v_job.tenant_id
           and exists (select from leasehold.live_jobs j where j.queue = a.queue and (j.tenant_id, j.priority) = (a.tenant_id, a.priority)
                          and not j.running and j.run_at <= v_now);
        select count(*) into v_ahead from (
            select from leasehold.live_jobs j
             where j.queue = v_job.queue and not j.running and j.run_at <= v_now and (v_others = 0 or j.tenant_id = v_job.tenant_id)
               and (j.priority > v_job.priority or (j.priority = v_job.priority and (j.run_at, j.id) < (v_job.run_at, v_job.id)))
             limit 100000) a;
        select count(*) / 60.0 into v_per_second from leasehold.history h
         where h.finished_at > v_now - interval '1 minute' and h.queue = v_job.queue and (v_others = 0 or h.tenant_id = v_job.tenant_id);
        code := 'ready';
        message := format('%s jobs of %squeue %s come before it', case when v_ahead = 100000 then 'over 100000' else v_ahead::text end,
                          case when v_others > 0 then 'its tenant in ' else '' end, v_job.queue);
        if v_others > 0 then
            message := message || format('; %s other tenants have jobs there, and each has its share', v_others);
        end if;
        if v_per_second > 0 then
            until := v_now + (v_ahead + 1) / v_per_second * interval '1 second';
            message := message || format('; at %s jobs a second, as in the last minute, it begins about %s', round(v_per_second::numeric, 1), until);
        end if;
        return next;
    end if;
end $$;
