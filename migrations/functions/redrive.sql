-- dead or cancelled -> queued, due at once. Attempts and crashes start anew; the lease number goes on, so a worker that still
-- holds an old lease stays fenced. An expires_at that has passed is dropped. Answers whether the job moved: false when it is not
-- dead or cancelled. LH002: its module was removed, so nothing could run it. LH004: no such job. LH006: another job has its
-- unique key. LH030, LH031: a full quota of the tenant.
create or replace function leasehold.redrive(job_id bigint) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_job record;
    v_now timestamptz;
    v_owner bigint;
    v_counted boolean;
begin
    perform leasehold.check_job(job_id);
    perform pg_current_xact_id();  -- before the clock, as in enqueue
    v_now := clock_timestamp();
    delete from leasehold.history h where h.id = job_id and h.state in ('dead', 'cancelled') returning h.* into v_job;
    if not found then
        if not exists (select from leasehold.live_jobs j where j.id = job_id) and not exists (select from leasehold.history h where h.id = job_id) then
            raise exception 'there is no job %', job_id using errcode = 'LH004';
        end if;
        return false;
    end if;
    if not exists (select from leasehold.modules m where m.module_id = v_job.module_id and m.name is not null) then
        raise exception 'module % of job % was removed', (select quote_literal(m.removed_name) from leasehold.modules m where m.module_id = v_job.module_id), job_id
            using errcode = 'LH002', hint = 'enqueue a new job of a module that is there';
    end if;
    select t.counted into v_counted from leasehold.tenants t where t.tenant_id = v_job.tenant_id and t.removing_at is null;
    if not found then
        perform leasehold.no_tenant((select t.name from leasehold.tenants t where t.tenant_id = v_job.tenant_id));
    elsif v_counted then
        perform leasehold.take_quota(v_job.tenant_id, 1, octet_length(v_job.payload));
    end if;
    if v_job.options ? 'unique_key' then
        -- Its own key, even where the period lasts, is no conflict.
        v_owner := leasehold.take_unique_key(v_job.tenant_id, v_job.options, v_job.id, v_now);
        if v_owner <> v_job.id then
            raise exception 'job % has the unique key of job %', v_owner, job_id using errcode = 'LH006', hint = 'cancel that one first, or let it be';
        end if;
    end if;
    insert into leasehold.live_jobs (tenant_id, module_id, id, queue, priority, lease_no, max_attempts, timeout_ms, backoff_ms, version,
                                     version_pinned, run_at, enqueued_at, payload, expires_at, options, counted)
    overriding system value
    values (v_job.tenant_id, v_job.module_id, v_job.id, v_job.queue, v_job.priority, v_job.lease_no, v_job.max_attempts, v_job.timeout_ms,
            v_job.backoff_ms, case when v_job.version_pinned then v_job.version end, v_job.version_pinned, v_now, v_job.enqueued_at, v_job.payload,
            case when v_job.expires_at > v_now then v_job.expires_at end, v_job.options, nullif(v_counted, false));
    -- Of a job that ended before tenants had lanes, there may be none.
    if not exists (select from leasehold.tenant_lanes l where (l.queue, l.tenant_id, l.priority) = (v_job.queue, v_job.tenant_id, v_job.priority)) then
        insert into leasehold.tenant_lanes values (v_job.tenant_id, v_job.queue, v_job.priority);
    end if;
    delete from leasehold.notes n where n.job_id = v_job.id;  -- it ended, whether or not somebody has tidied up since
    if v_job.expires_at > v_now then
        insert into leasehold.expiries values (v_job.expires_at, v_job.id) on conflict do nothing;
    end if;
    perform leasehold.wake(v_job.queue);
    return true;
end $$;
