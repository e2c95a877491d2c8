-- What it takes to run an attempt of a job once more, elsewhere: the module's bytes, the payload, and the settings and the fate that the attempt had.
-- Moves nothing; called by leasehold replay. p_lease_no null: the last attempt that failed, else the last one that is known. LH004: there is no such
-- job, it has not run, or it has no such attempt. LH002: the version that ran was removed.
create or replace function leasehold.attempt_to_replay(p_job_id bigint, p_lease_no int)
returns table (
    tenant text, module text, version int, digest bytea, bytes bytea, fuel bigint, memory_bytes bigint, timeout_ms int, result_bytes bigint, log_bytes int,
    follow_ups int, on_failure jsonb, queue text, payload bytea, attempt int, max_attempts int, lease_no int, started_ms bigint, outcome text,
    failure_kind text, message text, backtrace text
)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_job record;
    v_run record;
begin
    select j.tenant_id, j.module_id, j.version, j.queue, j.payload, j.timeout_ms, j.attempt, j.max_attempts, j.lease_no, j.started_at,
           case when j.running then 'running' end as outcome into v_job
      from leasehold.live_jobs j where j.id = p_job_id;
    if not found then
        select h.tenant_id, h.module_id, h.version, h.queue, h.payload, h.timeout_ms, h.attempt, h.max_attempts, h.lease_no, h.started_at,
               h.state::text as outcome into v_job
          from leasehold.history h where h.id = p_job_id order by h.finished_at desc limit 1;
    end if;
    if not found then
        raise exception 'there is no job %', p_job_id using errcode = 'LH004',
            hint = 'leasehold job list shows some; finished jobs are dropped after the days that the workers'' --retention-days says';
    end if;

    select a.lease_no, a.attempt, a.version, a.started_at, a.outcome, a.failure_kind, a.message, a.backtrace into v_run
      from leasehold.attempts a
     where a.job_id = p_job_id and (p_lease_no is null or a.lease_no = p_lease_no)
     order by (a.failure_kind is not null) desc, a.lease_no desc limit 1;
    if not found then
        -- A run that ended well and said nothing leaves no row; the job itself remembers the last one.
        if v_job.started_at is null or v_job.lease_no <> coalesce(p_lease_no, v_job.lease_no) then
            raise exception 'job % has %', p_job_id,
                case when p_lease_no is null then 'not run yet'
                     else format('no attempt with lease %s; its last lease is %s', p_lease_no, v_job.lease_no) end
                using errcode = 'LH004', hint = format('leasehold job show %s lists its attempts', p_job_id);
        end if;
        select v_job.lease_no, v_job.attempt, v_job.version, v_job.started_at, v_job.outcome, null::text as failure_kind, null::text as message,
               null::text as backtrace into v_run;
    end if;

    return query
    select t.name::text, coalesce(m.name, m.removed_name)::text, v.version, v.digest, b.bytes, v.fuel, v.memory_bytes,
           coalesce(v_job.timeout_ms, v.timeout_ms), v.result_bytes, v.log_bytes, v.follow_ups, v.on_failure, v_job.queue::text, v_job.payload,
           greatest(v_run.attempt, 1), greatest(v_job.max_attempts, v_run.attempt, 1), v_run.lease_no,
           (extract(epoch from v_run.started_at) * 1000)::bigint, v_run.outcome::text, v_run.failure_kind::text, v_run.message::text,
           v_run.backtrace::text
      from leasehold.modules m
      join leasehold.tenants t on t.tenant_id = m.tenant_id
      join leasehold.module_versions v on v.module_id = m.module_id and v.version = v_run.version
      join leasehold.module_bytes b on b.tenant_id = v.tenant_id and b.digest = v.digest
     where m.module_id = v_job.module_id and m.tenant_id = v_job.tenant_id;
    if not found then
        raise exception 'version % of the module that job % ran is gone: the module was removed', v_run.version, p_job_id using errcode = 'LH002',
            hint = 'upload it again, and run it with: leasehold run FILE.wasm --payload ...';
    end if;
end $$;
