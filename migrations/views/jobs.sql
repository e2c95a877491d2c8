-- All jobs, live and finished. Look one up by id; list with a filter on tenant, state or finished_at.
-- result is JSON where the guest's bytes are JSON, a JSON string where they are text, else null; result_bytes are as returned.
-- progress is what the guest said of the present run, 0 to 1, and progress_message what it is at. error is that of the last failed attempt. waiting: kept from running by something else than its time; leasehold.explain says what. version is the pinned one, the running one, or the one that ran last.
create or replace view leasehold.jobs as
select j.id, t.name as tenant, coalesce(m.name, m.removed_name) as module, j.version, j.queue,
       case when j.running then 'running' else 'queued' end::leasehold.job_state as state,
       j.priority, j.attempt, j.max_attempts, coalesce(j.due_at, j.run_at) as run_at, j.enqueued_at, j.started_at, null::timestamptz as finished_at,
       null::jsonb as result, a.message as error, null::jsonb as usage,
       a.failure_kind, null::bytea as result_bytes, j.payload, j.lease_no, j.crash_count, j.cancel_requested, c.worker_id, c.locked_until,
       j.expires_at, j.options, j.waits_at is not null as waiting, n.fraction as progress, n.message as progress_message, n.noted_at as progress_at
  from leasehold.live_jobs j
  join leasehold.tenants t on t.tenant_id = j.tenant_id
  join leasehold.modules m on m.module_id = j.module_id
  left join leasehold.claims c on c.claim_id = j.claim_id
  left join leasehold.notes n on n.job_id = j.id and n.lease_no = j.lease_no and j.running and n.fraction is not null
  left join lateral (select a.message, a.failure_kind from leasehold.attempts a
                      where a.job_id = j.id and a.failure_kind is not null order by a.lease_no desc limit 1) a on true
union all
select h.id, t.name, coalesce(m.name, m.removed_name), h.version, h.queue, h.state, h.priority, h.attempt, h.max_attempts, h.run_at,
       h.enqueued_at, h.started_at, h.finished_at, leasehold.as_json(h.result), h.error,
       case when h.wall_us is not null then
           jsonb_build_object('fuel', h.fuel, 'wall_ms', round(h.wall_us / 1000.0, 3), 'cpu_ms', round(h.cpu_us / 1000.0, 3),
                              'memory_peak_bytes', h.memory_peak_bytes, 'result_bytes', coalesce(octet_length(h.result), 0)) end,
       h.failure_kind, h.result, h.payload, h.lease_no, h.crash_count, false, h.worker_id, null, h.expires_at, h.options, false, null, null, null
  from leasehold.history h
  join leasehold.tenants t on t.tenant_id = h.tenant_id
  join leasehold.modules m on m.module_id = h.module_id;
