-- What enqueue does where the unique key is another job's: keep answers that job; replace gives it the new payload, priority and
-- time while it is queued, and answers it. Part of enqueue. LH003: another on_conflict, or another module's job.
-- LH031: the tenant's quota of bytes has no room for the larger payload.
create or replace function leasehold.meet_unique_job(
    p_id bigint, p_on_conflict text, p_module_id int, p_payload bytea, p_queue text, p_priority int, p_due_at timestamptz
) returns bigint
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
    v_job record;
begin
    if p_on_conflict = 'keep' then
        return p_id;
    elsif p_on_conflict is distinct from 'replace' then
        raise exception 'on_conflict % is neither keep nor replace', coalesce(quote_literal(left(p_on_conflict, 80)), 'null') using errcode = 'LH003';
    end if;
    select j.* into v_job from leasehold.live_jobs j where j.id = p_id and not j.running for no key update;
    if not found then
        return p_id;  -- it runs, or has ended within its period
    elsif v_job.module_id <> p_module_id then
        raise exception 'job % has this unique key and is of another module', p_id using errcode = 'LH003', hint = 'begin the key with the module''s name';
    end if;
    if v_job.counted then
        perform leasehold.take_quota(v_job.tenant_id, 0, octet_length(p_payload) - octet_length(v_job.payload));
    end if;
    delete from leasehold.waiting_jobs w where (w.gate_id, w.queue, w.priority, w.due_at, w.job_id) = (v_job.waits_at, v_job.queue, v_job.priority, v_job.due_at, v_job.id);
    if v_job.waits_at = 0 then
        update leasehold.live_jobs j set payload = p_payload, queue = p_queue, priority = p_priority, due_at = p_due_at where j.id = p_id;
    else
        update leasehold.live_jobs j set payload = p_payload, queue = p_queue, priority = p_priority, run_at = p_due_at, due_at = null, waits_at = null where j.id = p_id;
        perform leasehold.wake(p_queue);
    end if;
    return p_id;
end $$;
