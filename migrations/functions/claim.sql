-- queued -> running. Called by a worker's one claimer for as many jobs as it has free slots.
--
-- p_lane_*: the lower bound (run_at, id) that this claimer keeps for a lane, which is a queue and a priority; a lane without
-- one starts at the beginning. All due jobs below a bound were seen before, so the entries that somebody's open snapshot
-- keeps in the index are not walked over again. p_queues: in the order in which queues of equal priority are tried.
--
-- Answers one row a claimed job, and before them always one row without a job (id null) that carries what the claimer needs
-- for its bounds and its next sleep:
--   claim_id      the lease to heartbeat; null when nothing was claimed
--   lane_*        how far each lane was seen in this claim: due jobs before it were taken or are somebody else's
--   seen_at, oldest_xid, next_xid   a clock reading and, read just after it, the oldest transaction still open and the next
--                 one to be numbered: every one from next_xid on enqueues at a later clock than seen_at
--   next_due_ms   milliseconds until the next job of these queues is due, when that is within a minute
create or replace function leasehold.claim(
    p_worker_id bigint, p_queues text[], p_limit int, p_bytes bigint, p_lease_ms int,
    p_lane_queues text[], p_lane_priorities int[], p_lane_run_ats timestamptz[], p_lane_ids bigint[]
) returns table (
    id bigint, tenant_id int, module_id int, version int, queue text, attempt int, max_attempts int, lease_no int,
    timeout_ms int, backoff_ms int, payload bytea,
    claim_id bigint, lane_queues text[], lane_priorities int[], lane_run_ats timestamptz[], lane_ids bigint[],
    seen_at timestamptz, oldest_xid bigint, next_xid bigint, next_due_ms bigint
)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
-- The plan must never depend on statistics, which a queue's churn always leaves stale: the index in its order, nothing else.
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
    v_now timestamptz;
    v_snapshot pg_snapshot;
    v_inactive int[];
    v_ids bigint[] := '{}';
    v_free_bytes bigint := p_bytes;
    v_lane record;
    v_lane_limit int;
    v_lane_ids bigint[];
    v_lane_run_ats timestamptz[];
    v_lane_bytes bigint[];
    v_taken int;
    v_due timestamptz;
begin
    -- Losing a claim in a crash of the server costs nothing: the job is queued again. So nobody waits for the disk here.
    perform set_config('synchronous_commit', 'off', true);
    v_now := clock_timestamp();
    v_snapshot := pg_current_snapshot();
    seen_at := v_now;
    oldest_xid := pg_snapshot_xmin(v_snapshot)::text::bigint;
    -- Not the snapshot's own xmax: that follows the newest transaction that has ended, and one that is open may be newer and
    -- have read its clock before us. age() counts from the next number.
    next_xid := oldest_xid + age(pg_snapshot_xmin(v_snapshot)::xid);
    select array_agg(m.module_id) into v_inactive from leasehold.modules m where m.active_version is null;
    lane_queues := '{}'; lane_priorities := '{}'; lane_run_ats := '{}'; lane_ids := '{}';

    for v_lane in
        select l.queue, l.priority, coalesce(b.run_at, '-infinity') as run_at, coalesce(b.id, 0) as id
          from (select distinct a.queue, a.priority from leasehold.lanes a where a.queue = any(p_queues)) l
          left join unnest(p_lane_queues, p_lane_priorities, p_lane_run_ats, p_lane_ids) b(queue, priority, run_at, id)
            on b.queue = l.queue and b.priority = l.priority
         order by l.priority desc, array_position(p_queues, l.queue)
    loop
        v_lane_limit := p_limit - cardinality(v_ids);
        exit when v_lane_limit <= 0 or v_free_bytes <= 0;
        -- Picked into arrays, not joined: a join may scan the limited query twice and lock more rows than the limit.
        select array_agg(c.id), array_agg(c.run_at), array_agg(c.bytes) into v_lane_ids, v_lane_run_ats, v_lane_bytes from (
            select j.id, j.run_at, octet_length(j.payload)::bigint as bytes from leasehold.live_jobs j
             where j.queue = v_lane.queue and j.priority = v_lane.priority
               and (j.run_at, j.id) > (v_lane.run_at, v_lane.id) and j.run_at <= v_now
               and not j.running and (v_inactive is null or j.module_id <> all(v_inactive))
             order by j.run_at, j.id
             limit v_lane_limit
             for update skip locked) c;
        -- As many as fit into the bytes left, but one at least, or a large payload would wait for ever.
        v_taken := 0;
        while v_taken < coalesce(cardinality(v_lane_ids), 0) and (v_free_bytes >= v_lane_bytes[v_taken + 1] or cardinality(v_ids) + v_taken = 0) loop
            v_taken := v_taken + 1;
            v_free_bytes := v_free_bytes - v_lane_bytes[v_taken];
        end loop;
        lane_queues := lane_queues || v_lane.queue;
        lane_priorities := lane_priorities || v_lane.priority::int;
        if v_taken < coalesce(cardinality(v_lane_ids), 0) then
            v_free_bytes := 0;  -- the rest of this lane comes first next time
        end if;
        if v_taken < v_lane_limit and v_free_bytes > 0 then
            lane_run_ats := lane_run_ats || v_now;   -- seen to its end
            lane_ids := lane_ids || 0::bigint;
            select j.run_at into v_due from leasehold.live_jobs j
             where j.queue = v_lane.queue and j.priority = v_lane.priority and j.run_at > v_now and j.run_at < v_now + interval '1 minute'
             order by j.run_at, j.id limit 1;
            if found then
                next_due_ms := least(next_due_ms, ceil(extract(epoch from v_due - v_now) * 1000));
            end if;
        elsif v_taken > 0 then
            lane_run_ats := lane_run_ats || v_lane_run_ats[v_taken];
            lane_ids := lane_ids || v_lane_ids[v_taken];
        else
            lane_run_ats := lane_run_ats || v_lane.run_at;
            lane_ids := lane_ids || v_lane.id;
        end if;
        v_ids := v_ids || v_lane_ids[:v_taken];
    end loop;

    if cardinality(v_ids) = 0 then
        return next;
        return;
    end if;
    claim_id := nextval('leasehold.claims_claim_id_seq');
    return next;

    return query
        with claimed as (
            update leasehold.live_jobs j
               set running = true, attempt = j.attempt + 1, lease_no = j.lease_no + 1, started_at = v_now,
                   claim_id = claim.claim_id, version = coalesce(j.version, m.active_version)
              from leasehold.modules m
             where j.id = any(v_ids) and m.module_id = j.module_id
            returning j.*
        ), lease as (
            insert into leasehold.claims (claim_id, worker_id, locked_until, job_ids, lease_nos)
            overriding system value
            select claim.claim_id, p_worker_id, v_now + p_lease_ms * interval '1 millisecond', array_agg(c.id), array_agg(c.lease_no)
              from claimed c
        )
        select c.id, c.tenant_id, c.module_id, c.version, c.queue, c.attempt, c.max_attempts, c.lease_no, c.timeout_ms,
               c.backoff_ms, c.payload, null::bigint, null::text[], null::int[], null::timestamptz[], null::bigint[],
               null::timestamptz, null::bigint, null::bigint, null::bigint
          from claimed c order by c.priority desc, c.run_at, c.id;
end $$;
