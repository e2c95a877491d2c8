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
-- p_turn_*: whose turn it is, in this order, where more is due than there is room for: lanes of one tenant each, how many of its jobs
-- are taken, and the place from which on its jobs were not seen yet. What room the turns leave is filled from the same lanes, first to
-- last. A tenant that is paused, at its cap or out of tokens is left out before anything is counted. Null, as a previous version's
-- worker calls it: jobs are taken as they come. Without turns they are, too, where all that are due fit in; where they
-- do not, nothing is taken, and whose they are is answered.
--
-- Answers one row a claimed job, and before them always one row without a job (id null) that carries what the claimer needs
-- for its bounds and its next sleep:
--   claim_id      the lease to heartbeat; null when nothing was claimed
--   lane_*        how far each lane was seen in this claim: due jobs before it were taken, moved, or are somebody else's; or
--                 their tenant's lane had a turn, or is answered as ready
--   turn_*        how far each turn's lane was seen, and whether that was its end; null: it was left out, though it has jobs
--   ready_*       lanes of one tenant in which jobs are due, and the place just before the first of them
--   seen_at, oldest_xid, next_xid   a clock reading and, read just after it, the oldest transaction still open and the next
--                 one to be numbered: every one from next_xid on enqueues at a later clock than seen_at
--   next_due_ms   milliseconds until the next job of these queues is due, when that is within a minute; 0: look again now
-- A claim waits for the disk, where the session does: one that a crash of the server took back would leave its worker with a
-- lease number that is then given out again, and two workers with one fencing token.
drop function if exists leasehold.claim(bigint, text[], int, bigint, int, text[], int[], timestamptz[], bigint[]);
drop function if exists leasehold.claim(bigint, text[], int, bigint, int, text[], int[], timestamptz[], bigint[], boolean);
create or replace function leasehold.claim(
    p_worker_id bigint, p_queues text[], p_limit int, p_bytes bigint, p_lease_ms int,
    p_lane_queues text[], p_lane_priorities int[], p_lane_run_ats timestamptz[], p_lane_ids bigint[], p_queue_first boolean default false,
    p_turn_tenants int[] default null, p_turn_queues text[] default null, p_turn_priorities int[] default null, p_turn_counts int[] default null,
    p_turn_run_ats timestamptz[] default null, p_turn_ids bigint[] default null
) returns table (
    id bigint, tenant_id int, module_id int, version int, queue text, attempt int, max_attempts int, lease_no int,
    timeout_ms int, backoff_ms int, payload bytea,
    claim_id bigint, lane_queues text[], lane_priorities int[], lane_run_ats timestamptz[], lane_ids bigint[],
    seen_at timestamptz, oldest_xid bigint, next_xid bigint, next_due_ms bigint, options jsonb,
    turn_run_ats timestamptz[], turn_ids bigint[], turn_ends boolean[],
    ready_tenants int[], ready_queues text[], ready_priorities int[], ready_run_ats timestamptz[], ready_ids bigint[]
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
    c_seen constant int := 1000;        -- how many due jobs one claim looks at in a lane for whose they are, before it asks tenant by tenant
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
    v_queue text;
    v_priority smallint;
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
    v_lanes record;
    v_shares boolean;        -- more is due than there is room for, and several tenants want it
    v_ready record;
    v_most int[];            -- by turn: how many of its tenant's jobs may begin at all
    v_counts int[];          -- by turn: how many may be picked
    v_left_out int[];        -- by turn: 0 where it was left out
    v_picked_turns int[];
    v_gate_turns int[];
    v_special boolean[];
    v_turns boolean;
    v_got int[];             -- by turn: how many were picked
    v_turn int;
    v_hold_ats timestamptz[];
    v_hold_ids bigint[];
    v_round int := 0;
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
                                     and not exists (select from leasehold.paused_queues p where p.queue = l.queue) limit c_lines) l) as open,
           p_turn_tenants is not null and exists (
               select from leasehold.tenant_lanes a where a.queue = any(p_queues)
                  and a.tenant_id <> (select b.tenant_id from leasehold.tenant_lanes b where b.queue = any(p_queues) limit 1)) as shared
      into v_state;
    v_scoped := v_state.scoped;
    v_open := v_state.open;
    if v_state.paused then
        v_queues := array(select q from unnest(p_queues) with ordinality u(q, n) where not exists (select from leasehold.paused_queues p where p.queue = q) order by n);
    end if;
    -- The lanes in the order in which they are tried, each from where it was seen to.
    select array_agg(x.queue) as queues, array_agg(x.priority) as priorities, array_agg(x.run_at) as run_ats, array_agg(x.id) as ids into v_lanes from (
        select l.queue, l.priority, coalesce(b.run_at, '-infinity') as run_at, coalesce(b.id, 0) as id
          from (select distinct a.queue, a.priority from leasehold.lanes a where a.queue = any(v_queues)) l
          left join unnest(p_lane_queues, p_lane_priorities, p_lane_run_ats, p_lane_ids) b(queue, priority, run_at, id)
            on b.queue = l.queue and b.priority = l.priority
         order by case when p_queue_first then array_position(p_queues, l.queue) end, l.priority desc, array_position(p_queues, l.queue)) x;
    lane_queues := '{}'; lane_priorities := '{}'; lane_run_ats := '{}'; lane_ids := '{}';

    -- Where several tenants have jobs, whose are due? Those of a long backlog are found tenant by tenant.
    v_shares := v_state.shared or coalesce(cardinality(p_turn_tenants), 0) > 0;
    if v_shares then
        select coalesce(sum(x.jobs), 0) as jobs, array_agg(distinct x.n) filter (where x.in_lane = c_seen) as deep,
               array_agg(x.tenant_id) as tenants, array_agg(x.queue) as queues, array_agg(x.priority::int) as priorities,
               array_agg(x.run_at) as run_ats, array_agg(x.id) as ids
          into v_ready from (
            select l.n, l.queue, l.priority, d.tenant_id, count(*) as jobs, sum(count(*)) over (partition by l.n) as in_lane,
                   min(d.run_at) as run_at, (array_agg(d.id order by d.run_at, d.id))[1] - 1 as id
              from unnest(v_lanes.queues, v_lanes.priorities, v_lanes.run_ats, v_lanes.ids) with ordinality l(queue, priority, run_at, id, n)
             cross join lateral (
                select j.tenant_id, j.run_at, j.id from leasehold.live_jobs j
                 where j.queue = l.queue and j.priority = l.priority
                   and (j.run_at, j.id) > (l.run_at, l.id) and j.run_at <= v_now and not j.running
                 order by j.run_at, j.id limit c_seen) d
             group by l.n, l.queue, l.priority, d.tenant_id) x;
        -- What is due fits in: nobody has to take turns.
        v_shares := cardinality(p_turn_tenants) > 0 or v_open > 0 or v_ready.jobs > p_limit;
    end if;
    if v_shares then
        ready_tenants := v_ready.tenants; ready_queues := v_ready.queues; ready_priorities := v_ready.priorities;
        ready_run_ats := v_ready.run_ats; ready_ids := v_ready.ids;
        if v_ready.deep is not null then
            select ready_tenants || array_agg(x.tenant_id) as tenants, ready_queues || array_agg(x.queue) as queues,
                   ready_priorities || array_agg(x.priority::int) as priorities, ready_run_ats || array_agg(x.run_at) as run_ats,
                   ready_ids || array_agg(x.id) as ids
              into v_ready from (
                select a.tenant_id, a.queue, a.priority, d.run_at, d.id - 1 as id
                  from unnest(v_ready.deep) n
                  join leasehold.tenant_lanes a on a.queue = v_lanes.queues[n] and a.priority = v_lanes.priorities[n]
                 cross join lateral (
                    select j.run_at, j.id from leasehold.live_jobs j
                     where j.queue = a.queue and (j.tenant_id, j.priority, j.run_at, j.id) > (a.tenant_id, a.priority, v_lanes.run_ats[n], v_lanes.ids[n])
                       and (j.tenant_id, j.priority, j.run_at) <= (a.tenant_id, a.priority, v_now) and not j.running
                     order by j.tenant_id, j.priority, j.run_at, j.id limit 1) d) x;
            ready_tenants := v_ready.tenants; ready_queues := v_ready.queues; ready_priorities := v_ready.priorities;
            ready_run_ats := v_ready.run_ats; ready_ids := v_ready.ids;
        end if;
        if v_open > 0 then
            -- Tenants whose gates have opened have jobs to run as well. (A lane that is seen to now has nothing else in it.)
            select ready_tenants || array_agg(x.tenant_id) as tenants, ready_queues || array_agg(x.queue) as queues,
                   ready_priorities || array_agg(0) as priorities, ready_run_ats || array_agg(v_now) as run_ats, ready_ids || array_agg(0::bigint) as ids
              into v_ready from (
                select distinct g.tenant_id, o.queue
                  from (select l.gate_id, l.queue from leasehold.gate_lines l where l.queue = any(v_queues) and l.opens_at <= v_now order by l.opens_at limit c_lines) o
                  join leasehold.gates g on g.gate_id = o.gate_id
                 where g.tenant_id <> all(p_turn_tenants)) x;
            ready_tenants := v_ready.tenants; ready_queues := v_ready.queues; ready_priorities := v_ready.priorities;
            ready_run_ats := v_ready.run_ats; ready_ids := v_ready.ids;
        end if;
        -- Whatever is due in a lane is now somebody's that is answered.
        lane_queues := coalesce(v_lanes.queues, '{}'); lane_priorities := coalesce(v_lanes.priorities, '{}');
        lane_run_ats := array_fill(v_now, array[cardinality(lane_queues)]); lane_ids := array_fill(0::bigint, array[cardinality(lane_queues)]);
    end if;
    turn_run_ats := p_turn_run_ats; turn_ids := p_turn_ids; turn_ends := array_fill(false, array[coalesce(cardinality(p_turn_tenants), 0)]);
    v_counts := p_turn_counts;

    -- The gates that have opened; of those whose turn it is. Those that somebody else is at are looked at again soon.
    if v_open > 0 then
        for v_gate in
            select l.queue as line_queue, g.* from leasehold.gate_lines l join leasehold.gates g on g.gate_id = l.gate_id
             where l.queue = any(v_queues) and l.opens_at <= v_now and (not v_shares or g.tenant_id = any(p_turn_tenants))
             order by l.opens_at limit c_lines for no key update of g skip locked
        loop
            v_open := v_open - 1;
            if exists (select from leasehold.waiting_jobs w where w.gate_id = v_gate.gate_id and w.queue = v_gate.line_queue) then
                v_gates := v_gates || v_gate.gate_id;
                v_gate_queues := v_gate_queues || v_gate.line_queue;
                v_gate_turns := v_gate_turns || case when v_shares then array_position(p_turn_tenants, v_gate.tenant_id) end;
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

    -- Lane by lane; where several tenants want more than there is room for, only through the gates. Last come the turns, as a lane without a queue.
    for v_n in 1..coalesce(cardinality(v_lanes.queues), 0) + v_shares::int loop
        v_queue := v_lanes.queues[v_n]; v_priority := v_lanes.priorities[v_n];
        exit when cardinality(v_ids) >= p_limit or v_free_bytes <= 0;
        -- Jobs that have waited at a gate were at the head of this lane before.
        for v_gate in
            select g.gate_id, g.turn, g.room from unnest(v_gates, v_gate_queues, v_gate_turns, v_gate_rooms) g(gate_id, queue, turn, room) where g.queue = v_queue
        loop
            exit when v_made_gates;
            v_room := least(p_limit - cardinality(v_ids), v_gate.room, v_counts[v_gate.turn]);
            continue when v_room <= 0;
            v_picked_ids := array(
                select j.id from leasehold.waiting_jobs w join leasehold.live_jobs j on j.id = w.job_id
                 where w.gate_id = v_gate.gate_id and w.queue = v_queue and w.priority = v_priority and j.waits_at = w.gate_id
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
                v_pass := leasehold.pass_gates(v_job.id, v_job.tenant_id, v_job.module_id, v_job.options, v_queue, v_priority, v_job.due_at, v_job.waits_at, v_now);
                if v_pass.verdict = 'through' then
                    v_ids := v_ids || v_job.id;
                    v_free_bytes := v_free_bytes - v_job.bytes;
                    v_places := v_places || jsonb_build_object(v_job.id, v_pass.places);
                    if v_gate.turn is not null then
                        v_counts[v_gate.turn] := v_counts[v_gate.turn] - 1;
                    end if;
                elsif v_pass.verdict = 'busy' then
                    next_due_ms := least(next_due_ms, c_busy_ms);
                elsif v_pass.gate_id = v_gate.gate_id then
                    exit;  -- this gate lets nobody through any more, now
                end if;
            end loop;
        end loop;

        v_walked := 0; v_end := false; v_hold := null;
        v_at := v_lanes.run_ats[v_n]; v_at_id := v_lanes.ids[v_n];
        v_turns := v_queue is null;
        if v_turns then
            v_hold_ats := array_fill(null::timestamptz, array[cardinality(p_turn_tenants)]);
            v_hold_ids := array_fill(null::bigint, array[cardinality(p_turn_tenants)]);
        end if;
        if v_turns and v_scoped then
            -- A tenant that is paused, at its cap or out of tokens is left out, and is looked at again when that ends.
            select array_agg((select min(case g.kind when 'pause' then 0 when 'cap' then greatest(g.wanted - g.running, 0)
                                              else floor(leasehold.tokens_at(g.tokens, g.refilled_at, g.per_second, g.burst, v_now) + 1e-6) end)::int
                                from leasehold.gates g
                               where g.tenant_id = t.tenant_id and g.module_id = 0 and g.kind <> 'key' and g.name = ''
                                 and (g.kind in ('cap', 'rate') or g.paused_at is not null)) order by t.n)
              into v_most from unnest(p_turn_tenants) with ordinality t(tenant_id, n);
            v_left_out := v_most;
            if 0 = any(v_most) and not leasehold.wait_at_gates(p_turn_tenants, p_turn_queues, v_most, v_now) then
                next_due_ms := least(next_due_ms, c_busy_ms);
            end if;
        end if;
        loop
            v_room := p_limit - cardinality(v_ids);
            exit when v_room <= 0 or v_free_bytes <= 0 or v_walked >= c_gated_jobs or v_made_gates;
            -- Picked into arrays, not joined: a join may scan the limited query twice and lock more rows than the limit.
            if v_turns then
                v_round := v_round + 1;
                if v_round > 1 then  -- what room is left: whoever comes first has it
                    v_counts := array(select case when t.ended then 0 else v_room end from unnest(turn_ends) with ordinality t(ended, n) order by t.n);
                end if;
                if v_most is not null then
                    v_counts := array(select least(t.count, t.most) from unnest(v_counts, v_most) with ordinality t(count, most, n) order by t.n);
                end if;
                select array_agg(c.turn), array_agg(c.id), array_agg(c.run_at), array_agg(c.bytes), array_agg(c.special)
                  into v_picked_turns, v_picked_ids, v_run_ats, v_bytes, v_special from (
                    select t.turn, j.id, j.run_at, octet_length(j.payload)::bigint as bytes, j.options is not null or j.expires_at is not null as special
                      from unnest(p_turn_tenants, p_turn_queues, p_turn_priorities, turn_run_ats, turn_ids, v_counts) with ordinality
                           t(tenant_id, queue, priority, run_at, id, count, turn)
                     cross join lateral (
                        select j.id, j.run_at, j.payload, j.options, j.expires_at from leasehold.live_jobs j
                         where j.queue = t.queue and (j.tenant_id, j.priority, j.run_at, j.id) > (t.tenant_id, t.priority::smallint, t.run_at, t.id)
                           and (j.tenant_id, j.priority, j.run_at) <= (t.tenant_id, t.priority::smallint, v_now) and not j.running
                         order by j.tenant_id, j.priority, j.run_at, j.id
                         limit t.count
                         for no key update skip locked) j
                     where t.count > 0 and t.queue = any(v_queues)
                     limit v_room) c;
            else
                exit when v_shares;
                select array_agg(c.id), array_agg(c.run_at), array_agg(c.bytes), array_agg(c.special)
                  into v_picked_ids, v_run_ats, v_bytes, v_special from (
                    select j.id, j.run_at, octet_length(j.payload)::bigint as bytes, j.options is not null or j.expires_at is not null as special
                      from leasehold.live_jobs j
                     where j.queue = v_queue and j.priority = v_priority
                       and (j.run_at, j.id) > (v_at, v_at_id) and j.run_at <= v_now and not j.running
                     order by j.run_at, j.id
                     limit v_room
                     for no key update skip locked) c;
            end if;
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
            if v_turns then
                v_got := array_fill(0, array[cardinality(p_turn_tenants)]);
                for i in 1..v_taken loop
                    v_turn := v_picked_turns[i];
                    turn_run_ats[v_turn] := v_run_ats[i]; turn_ids[v_turn] := v_picked_ids[i]; v_got[v_turn] := v_got[v_turn] + 1;
                end loop;
                if v_taken = v_picked then
                    -- A turn that was come to and brought fewer than it might is at the end of its lane.
                    v_turn := case when v_picked < v_room then cardinality(p_turn_tenants) + 1 else v_picked_turns[v_picked] end;
                    turn_ends := array(
                        select t.ended or (t.n < v_turn and t.got < t.count and t.queue = any(v_queues))
                          from unnest(turn_ends, v_got, v_counts, p_turn_queues) with ordinality t(ended, got, count, queue, n) order by t.n);
                end if;
                if v_most is not null then
                    v_most := array(select t.most - t.got from unnest(v_most, v_got) with ordinality t(most, got, n) order by t.n);
                end if;
            elsif v_taken > 0 then
                v_at := v_run_ats[v_taken]; v_at_id := v_picked_ids[v_taken];
            end if;
            v_gated := '{}';
            if v_scoped or true = any(v_special[:v_taken]) then
                v_gated := array(
                    select (j.options is not null and j.options ?| '{concurrency_key,rate_key}') or coalesce(j.expires_at <= v_now, false)
                           or (v_scoped and (exists (select from leasehold.modules m where m.module_id = j.module_id and m.active_version is null)
                                          or exists (select from leasehold.gates g where g.tenant_id = j.tenant_id and g.module_id in (0, j.module_id)
                                                        and g.kind <> 'key' and g.name = '' and (g.kind in ('cap', 'rate') or g.paused_at is not null))))
                      from unnest(v_picked_ids[:v_taken]) with ordinality u(id, n) join leasehold.live_jobs j on j.id = u.id order by u.n);
            end if;
            if true = any(v_gated) then
                v_made_gates := leasehold.make_gates(v_picked_ids[:v_taken]);
                for v_job in
                    select j.id, j.tenant_id, j.module_id, j.queue, j.priority, j.options, j.expires_at, j.run_at, u.gated, u.n
                      from unnest(v_picked_ids[:v_taken], v_gated) with ordinality u(id, gated, n)
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
                    v_pass := leasehold.pass_gates(v_job.id, v_job.tenant_id, v_job.module_id, v_job.options, v_job.queue, v_job.priority, v_job.run_at, null, v_now);
                    if v_pass.verdict = 'through' then
                        v_ids := v_ids || v_job.id;
                        v_places := v_places || jsonb_build_object(v_job.id, v_pass.places);
                    elsif v_pass.verdict = 'busy' and v_turns then
                        v_turn := v_picked_turns[v_job.n];
                        if v_hold_ats[v_turn] is null then
                            v_hold_ats[v_turn] := v_job.run_at; v_hold_ids[v_turn] := v_job.id - 1;
                            next_due_ms := least(next_due_ms, c_busy_ms);
                        end if;
                    elsif v_pass.verdict = 'busy' and v_hold is null then
                        v_hold := v_job.run_at; v_hold_id := v_job.id - 1;
                    end if;
                end loop;
            else
                v_ids := v_ids || v_picked_ids[:v_taken];
            end if;
            v_end := v_picked < v_room and v_free_bytes > 0 and (not v_turns or v_picked = 0 and v_round > 1);
            exit when v_end;
        end loop;

        if v_turns then
            v_again := v_again or (v_walked > 0 and not v_end);
            exit;
        elsif v_shares then
            v_end := true;
        else
            lane_queues := lane_queues || v_queue;
            lane_priorities := lane_priorities || v_priority::int;
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
        end if;
        if v_end then
            select j.run_at into v_due from leasehold.live_jobs j
             where j.queue = v_queue and j.priority = v_priority and j.run_at > v_now and j.run_at < v_now + interval '1 minute'
             order by j.run_at, j.id limit 1;
            if found then
                next_due_ms := least(next_due_ms, ceil(extract(epoch from v_due - v_now) * 1000));
            end if;
        end if;
        exit when v_made_gates and not v_shares;  -- a claim makes gates in one statement only, in order: two that do can then not block each other
    end loop;
    if v_shares then
        -- A turn that brought all it might may have come to its lane's end with that.
        turn_ends := array(
            select case when t.hold is not null or t.most = 0 or t.queue <> all(v_queues) then null
                        when t.ended then true
                        when (t.run_at, t.id) = (t.from_run_at, t.from_id) then false  -- it was not come to
                        else not exists (
                            select from leasehold.live_jobs j
                             where j.queue = t.queue and (j.tenant_id, j.priority, j.run_at, j.id) > (t.tenant_id, t.priority::smallint, t.run_at, t.id)
                               and (j.tenant_id, j.priority, j.run_at) <= (t.tenant_id, t.priority::smallint, v_now) and not j.running
                             order by j.tenant_id, j.priority, j.run_at, j.id) end
              from unnest(p_turn_tenants, p_turn_queues, p_turn_priorities, p_turn_run_ats, p_turn_ids, turn_run_ats, turn_ids, turn_ends, v_hold_ats, v_left_out)
                   with ordinality t(tenant_id, queue, priority, from_run_at, from_id, run_at, id, ended, hold, most, n)
             where t.n <= cardinality(p_turn_tenants) order by t.n);
        for v_turn in select t.n from unnest(v_hold_ats) with ordinality t(hold, n) where t.hold is not null loop
            turn_run_ats[v_turn] := v_hold_ats[v_turn]; turn_ids[v_turn] := v_hold_ids[v_turn];
        end loop;
    end if;

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
               null::timestamptz, null::bigint, null::bigint, null::bigint, c.options,
               null::timestamptz[], null::bigint[], null::boolean[], null::int[], null::text[], null::int[], null::timestamptz[], null::bigint[]
          from claimed c order by c.priority desc, c.run_at, c.id;
end $$;
