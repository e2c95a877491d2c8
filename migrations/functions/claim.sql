-- queued -> running. Called by a worker's one claimer for as many jobs as it has free slots.
--
-- p_lane_*: the lower bound (run_at, id) that this claimer keeps for a lane, which is a queue and a priority; a lane without
-- one starts at the beginning. All due jobs below a bound were seen before, so the entries that somebody's open snapshot
-- keeps in the index are not walked over again. p_queues: in the order in which queues of equal priority are tried; with
-- p_queue_first a queue's lanes all come before the next queue's.
--
-- A job that may not run now, because of a key, a rate, a cap or a pause, is moved out of its lane to the gate it has to pass
-- (waiting_jobs), and the gates that have opened are looked at before the lanes: so waiting jobs cost a claim nothing. A gate
-- that somebody else is at is not waited for; its jobs stay in their lane, below which the bound then stays.
--
-- Answers one row a claimed job, and before them always one row without a job (id null) that carries what the claimer needs
-- for its bounds and its next sleep:
--   claim_id      the lease to heartbeat; null when nothing was claimed
--   lane_*        how far each lane was seen in this claim: due jobs before it were taken, moved, or are somebody else's
--   seen_at, oldest_xid, next_xid   a clock reading and, read just after it, the oldest transaction still open and the next
--                 one to be numbered: every one from next_xid on enqueues at a later clock than seen_at
--   next_due_ms   milliseconds until the next job of these queues is due, when that is within a minute; 0: look again now
-- A claim waits for the disk, where the session does: one that a crash of the server took back would leave its worker with a
-- lease number that is then given out again, and two workers with one fencing token.
drop function if exists leasehold.claim(bigint, text[], int, bigint, int, text[], int[], timestamptz[], bigint[]);
create or replace function leasehold.claim(
    p_worker_id bigint, p_queues text[], p_limit int, p_bytes bigint, p_lease_ms int,
    p_lane_queues text[], p_lane_priorities int[], p_lane_run_ats timestamptz[], p_lane_ids bigint[], p_queue_first boolean default false
) returns table (
    id bigint, tenant_id int, module_id int, version int, queue text, attempt int, max_attempts int, lease_no int,
    timeout_ms int, backoff_ms int, payload bytea,
    claim_id bigint, lane_queues text[], lane_priorities int[], lane_run_ats timestamptz[], lane_ids bigint[],
    seen_at timestamptz, oldest_xid bigint, next_xid bigint, next_due_ms bigint, options jsonb
)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
-- The plan must never depend on statistics, which a queue's churn always leaves stale: the index in its order, nothing else.
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
declare
    c_gated_jobs constant int := 1000;  -- how many jobs with gates one claim looks at in a lane: what bounds its time
    c_lines constant int := 64;         -- how many opened lines one claim looks at
    c_busy_ms constant int := 5;        -- when to look again at a gate that somebody else was at: claims and settlements are short
    v_now timestamptz;
    v_snapshot pg_snapshot;
    v_queues text[];
    v_state record;
    v_scoped boolean;
    v_made_gates boolean := false;
    v_open bigint;
    v_ids bigint[] := '{}';
    v_free_bytes bigint := p_bytes;
    v_gates bigint[];
    v_gate_queues text[];
    v_gate_rooms int[];
    v_lane record;
    v_gate record;
    v_job record;
    v_pass record;
    v_room int;
    v_picked_ids bigint[];
    v_run_ats timestamptz[];
    v_bytes bigint[];
    v_gated boolean[];
    v_picked int;
    v_taken int;
    v_walked int;
    v_at timestamptz;        -- the place in the lane up to which it was seen
    v_at_id bigint;
    v_hold timestamptz;      -- the first place that has to be looked at again
    v_hold_id bigint;
    v_end boolean;
    v_expired bigint[] := '{}';
    v_places jsonb := '{}';  -- by job: the gates in which it takes a place
    v_again boolean := false;
    v_due timestamptz;
begin
    v_now := clock_timestamp();
    v_snapshot := pg_current_snapshot();
    seen_at := v_now;
    oldest_xid := pg_snapshot_xmin(v_snapshot)::text::bigint;
    -- Not the snapshot's own xmax: that follows the newest transaction that has ended, and one that is open may be newer and
    -- have read its clock before us. age() counts from the next number.
    next_xid := oldest_xid + age(pg_snapshot_xmin(v_snapshot)::xid);
    v_queues := p_queues;
    -- One statement for what mostly is: nothing paused, limited or waiting.
    select exists (select from leasehold.paused_queues) as paused,
           exists (select from leasehold.modules m where m.active_version is null and m.name is not null)
           or exists (select from leasehold.gates g where g.kind <> 'key' and g.name = '' and (g.kind in ('cap', 'rate') or g.paused_at is not null)) as scoped,
           (select count(*) from (select from leasehold.gate_lines l
                                   where l.queue = any(p_queues) and l.opens_at <= v_now
                                     and not exists (select from leasehold.paused_queues p where p.queue = l.queue) limit c_lines) l) as open
      into v_state;
    v_scoped := v_state.scoped;
    v_open := v_state.open;
    if v_state.paused then
        v_queues := array(select q from unnest(p_queues) with ordinality u(q, n) where not exists (select from leasehold.paused_queues p where p.queue = q) order by n);
    end if;
    lane_queues := '{}'; lane_priorities := '{}'; lane_run_ats := '{}'; lane_ids := '{}';

    -- The gates that have opened. Those that somebody else is at are looked at again soon.
    if v_open > 0 then
        for v_gate in
            select l.queue as line_queue, g.* from leasehold.gate_lines l join leasehold.gates g on g.gate_id = l.gate_id
             where l.queue = any(v_queues) and l.opens_at <= v_now
             order by l.opens_at limit c_lines for no key update of g skip locked
        loop
            v_open := v_open - 1;
            if exists (select from leasehold.waiting_jobs w where w.gate_id = v_gate.gate_id and w.queue = v_gate.line_queue) then
                v_gates := v_gates || v_gate.gate_id;
                v_gate_queues := v_gate_queues || v_gate.line_queue;
                -- No more are picked than can go through, but one at least.
                v_gate_rooms := v_gate_rooms || case
                    when v_gate.kind in ('key', 'cap') then greatest(coalesce(v_gate.wanted, v_gate.max) - v_gate.running, 1)
                    when v_gate.kind = 'rate' then floor(least(v_gate.burst, 1 + leasehold.tokens_at(v_gate.tokens, v_gate.refilled_at, v_gate.per_second,
                                                                                                     v_gate.burst, v_now)))::int
                    else p_limit end;
            else
                delete from leasehold.gate_lines l where l.gate_id = v_gate.gate_id and l.queue = v_gate.line_queue;
            end if;
        end loop;
    end if;
    if v_open > 0 then
        next_due_ms := c_busy_ms;
    end if;

    for v_lane in
        select l.queue, l.priority, coalesce(b.run_at, '-infinity') as run_at, coalesce(b.id, 0) as id
          from (select distinct a.queue, a.priority from leasehold.lanes a where a.queue = any(v_queues)) l
          left join unnest(p_lane_queues, p_lane_priorities, p_lane_run_ats, p_lane_ids) b(queue, priority, run_at, id)
            on b.queue = l.queue and b.priority = l.priority
         order by case when p_queue_first then array_position(p_queues, l.queue) end, l.priority desc, array_position(p_queues, l.queue)
    loop
        exit when cardinality(v_ids) >= p_limit or v_free_bytes <= 0;
        -- Jobs that have waited at a gate were at the head of this lane before.
        for v_gate in select g.gate_id, g.room from unnest(v_gates, v_gate_queues, v_gate_rooms) g(gate_id, queue, room) where g.queue = v_lane.queue loop
            exit when v_made_gates;
            v_room := least(p_limit - cardinality(v_ids), v_gate.room);
            v_picked_ids := array(
                select j.id from leasehold.waiting_jobs w join leasehold.live_jobs j on j.id = w.job_id
                 where w.gate_id = v_gate.gate_id and w.queue = v_lane.queue and w.priority = v_lane.priority and j.waits_at = w.gate_id
                 order by w.due_at, w.job_id limit v_room for no key update of j skip locked);
            continue when cardinality(v_picked_ids) = 0;
            v_made_gates := leasehold.make_gates(v_picked_ids);
            for v_job in
                select j.id, j.tenant_id, j.module_id, j.options, j.expires_at, j.due_at, j.waits_at, octet_length(j.payload) as bytes
                  from unnest(v_picked_ids) with ordinality u(id, n) join leasehold.live_jobs j on j.id = u.id order by u.n
            loop
                exit when v_free_bytes < v_job.bytes and cardinality(v_ids) > 0;
                if v_job.expires_at <= v_now then
                    v_expired := v_expired || v_job.id;
                    continue;
                end if;
                v_pass := leasehold.pass_gates(v_job.id, v_job.tenant_id, v_job.module_id, v_job.options, v_lane.queue, v_lane.priority, v_job.due_at, v_job.waits_at, v_now);
                if v_pass.verdict = 'through' then
                    v_ids := v_ids || v_job.id;
                    v_free_bytes := v_free_bytes - v_job.bytes;
                    v_places := v_places || jsonb_build_object(v_job.id, v_pass.places);
                elsif v_pass.verdict = 'busy' then
                    next_due_ms := least(next_due_ms, c_busy_ms);
                elsif v_pass.gate_id = v_gate.gate_id then
                    exit;  -- this gate lets nobody through any more, now
                end if;
            end loop;
        end loop;

        v_walked := 0; v_end := false; v_hold := null;
        v_at := v_lane.run_at; v_at_id := v_lane.id;
        loop
            v_room := p_limit - cardinality(v_ids);
            exit when v_room <= 0 or v_free_bytes <= 0 or v_walked >= c_gated_jobs or v_made_gates;
            -- Picked into arrays, not joined: a join may scan the limited query twice and lock more rows than the limit.
            select array_agg(c.id), array_agg(c.run_at), array_agg(c.bytes), array_agg(c.gated)
              into v_picked_ids, v_run_ats, v_bytes, v_gated from (
                select j.id, j.run_at, octet_length(j.payload)::bigint as bytes,
                       (j.options is not null and j.options ?| '{concurrency_key,rate_key}') or coalesce(j.expires_at <= v_now, false)
                       or (v_scoped and (exists (select from leasehold.modules m where m.module_id = j.module_id and m.active_version is null)
                                      or exists (select from leasehold.gates g where g.tenant_id = j.tenant_id and g.module_id in (0, j.module_id)
                                                    and g.kind <> 'key' and g.name = '' and (g.kind in ('cap', 'rate') or g.paused_at is not null)))) as gated
                  from leasehold.live_jobs j
                 where j.queue = v_lane.queue and j.priority = v_lane.priority
                   and (j.run_at, j.id) > (v_at, v_at_id) and j.run_at <= v_now and not j.running
                 order by j.run_at, j.id
                 limit v_room
                 for no key update skip locked) c;
            v_picked := coalesce(cardinality(v_picked_ids), 0);
            -- As many as fit into the bytes left, but one at least, or a large payload would wait for ever.
            v_taken := 0;
            while v_taken < v_picked and (v_free_bytes >= v_bytes[v_taken + 1] or cardinality(v_ids) + v_taken = 0) loop
                v_taken := v_taken + 1;
                v_free_bytes := v_free_bytes - v_bytes[v_taken];
            end loop;
            if v_taken < v_picked then
                v_free_bytes := 0;  -- the rest of this lane comes first next time
            end if;
            if v_taken > 0 then
                v_at := v_run_ats[v_taken]; v_at_id := v_picked_ids[v_taken];
            end if;
            if true = any(v_gated[:v_taken]) then
                v_made_gates := leasehold.make_gates(v_picked_ids[:v_taken]);
                for v_job in
                    select j.id, j.tenant_id, j.module_id, j.options, j.expires_at, u.run_at, u.gated
                      from unnest(v_picked_ids[:v_taken], v_run_ats[:v_taken], v_gated[:v_taken]) with ordinality u(id, run_at, gated, n)
                      join leasehold.live_jobs j on j.id = u.id order by u.n
                loop
                    if not v_job.gated then
                        v_ids := v_ids || v_job.id;
                        continue;
                    end if;
                    v_walked := v_walked + 1;
                    if v_job.expires_at <= v_now then
                        v_expired := v_expired || v_job.id;
                        continue;
                    end if;
                    v_pass := leasehold.pass_gates(v_job.id, v_job.tenant_id, v_job.module_id, v_job.options, v_lane.queue, v_lane.priority, v_job.run_at, null, v_now);
                    if v_pass.verdict = 'through' then
                        v_ids := v_ids || v_job.id;
                        v_places := v_places || jsonb_build_object(v_job.id, v_pass.places);
                    elsif v_pass.verdict = 'busy' and v_hold is null then
                        v_hold := v_job.run_at; v_hold_id := v_job.id - 1;
                    end if;
                end loop;
            else
                v_ids := v_ids || v_picked_ids[:v_taken];
            end if;
            v_end := v_picked < v_room and v_free_bytes > 0;
            exit when v_end;
        end loop;

        lane_queues := lane_queues || v_lane.queue;
        lane_priorities := lane_priorities || v_lane.priority::int;
        if v_hold is not null then
            lane_run_ats := lane_run_ats || v_hold;
            lane_ids := lane_ids || v_hold_id;
            next_due_ms := least(next_due_ms, c_busy_ms);
        elsif v_end then
            lane_run_ats := lane_run_ats || v_now;
            lane_ids := lane_ids || 0::bigint;
        else
            lane_run_ats := lane_run_ats || v_at;
            lane_ids := lane_ids || v_at_id;
            v_again := v_again or v_walked > 0;
        end if;
        if v_end then
            select j.run_at into v_due from leasehold.live_jobs j
             where j.queue = v_lane.queue and j.priority = v_lane.priority and j.run_at > v_now and j.run_at < v_now + interval '1 minute'
             order by j.run_at, j.id limit 1;
            if found then
                next_due_ms := least(next_due_ms, ceil(extract(epoch from v_due - v_now) * 1000));
            end if;
        end if;
        exit when v_made_gates;  -- a claim makes gates in one statement only, in order: two that do can then not block each other
    end loop;

    if cardinality(v_expired) > 0 then
        perform leasehold.expire(v_expired);
    end if;
    if cardinality(v_ids) = 0 then
        if v_again then
            next_due_ms := 0;
        else
            select l.opens_at into v_due from leasehold.gate_lines l
             where l.queue = any(v_queues) and l.opens_at > v_now and l.opens_at < v_now + interval '1 minute' order by l.opens_at limit 1;
            if found then
                next_due_ms := least(next_due_ms, ceil(extract(epoch from v_due - v_now) * 1000));
            end if;
        end if;
        return next;
        return;
    end if;
    claim_id := nextval('leasehold.claims_claim_id_seq');
    return next;

    return query
        with claimed as (
            update leasehold.live_jobs j
               set running = true, attempt = j.attempt + 1, lease_no = j.lease_no + 1, started_at = v_now,
                   claim_id = claim.claim_id, version = coalesce(j.version, m.active_version),
                   run_at = coalesce(j.due_at, j.run_at), due_at = null, waits_at = null,
                   held_gates = case when v_places ? j.id::text and v_places -> j.id::text <> 'null'
                                     then array(select g::bigint from jsonb_array_elements_text(v_places -> j.id::text) g) end
              from leasehold.modules m
             where j.id = any(v_ids) and m.module_id = j.module_id
            returning j.*
        ), lease as (
            insert into leasehold.claims (claim_id, worker_id, locked_until, job_ids, lease_nos)
            overriding system value
            select claim.claim_id, p_worker_id, v_now + p_lease_ms * interval '1 millisecond', array_agg(c.id), array_agg(c.lease_no)
              from claimed c
        )
        select c.id, c.tenant_id, c.module_id, c.version, c.queue, c.attempt, c.max_attempts, c.lease_no,
               case when c.expires_at is null then c.timeout_ms
                    else least((select coalesce(c.timeout_ms, v.timeout_ms) from leasehold.module_versions v
                                 where v.module_id = c.module_id and v.version = c.version),
                               greatest(1, ceil(extract(epoch from c.expires_at - v_now) * 1000))) end::int,
               c.backoff_ms, c.payload, null::bigint, null::text[], null::int[], null::timestamptz[], null::bigint[],
               null::timestamptz, null::bigint, null::bigint, null::bigint, c.options
          from claimed c order by c.priority desc, c.run_at, c.id;
end $$;
