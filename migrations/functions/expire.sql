-- queued -> dead, for jobs whose expires_at has passed before they ran to an end. Called by claim, which met them, and by
-- sweep. Answers how many it moved; the others are running, or somebody holds them.
create or replace function leasehold.expire(p_ids bigint[]) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
    v_ids bigint[];
    v_told bigint[];
begin
    v_ids := array(select j.id from leasehold.live_jobs j
                    where j.id = any(p_ids) and not j.running and j.expires_at <= clock_timestamp() for update skip locked);
    with ended as (
        delete from leasehold.live_jobs j where j.id = any(v_ids) returning j.*
    ), unlined as (
        delete from leasehold.waiting_jobs w using ended e
         where (w.gate_id, w.queue, w.priority, w.due_at, w.job_id) = (e.waits_at, e.queue, e.priority, e.due_at, e.id)
    ), freed as (
        delete from leasehold.dependencies d using ended e where d.job_id = e.id and e.waits_at = 0
    ), history as (
        insert into leasehold.history (tenant_id, module_id, id, state, priority, attempt, max_attempts, lease_no, crash_count, timeout_ms,
                                       backoff_ms, version, version_pinned, run_at, enqueued_at, finished_at, queue, payload, failure_kind, error,
                                       expires_at, options)
        select e.tenant_id, e.module_id, e.id, 'dead', e.priority, e.attempt, e.max_attempts, e.lease_no, e.crash_count, e.timeout_ms,
               e.backoff_ms, e.version, e.version_pinned, coalesce(e.due_at, e.run_at), e.enqueued_at, clock_timestamp(), e.queue, e.payload, 'expired',
               format('not done by %s, when it expired', e.expires_at), e.expires_at, e.options
          from ended e
    )
    select array_agg(e.id) filter (where (e.options -> 'notify')::boolean) into v_told from ended e;
    perform leasehold.conclude(v_ids, 'dead', null, v_told);
    return cardinality(v_ids);
end $$;
