-- The whole schema as the first version had it, for the tests of upgrading: never edited.
create schema leasehold;
create table leasehold.schema_version (version int primary key, name text not null, checksum text not null, applied_at timestamptz not null default now());
set check_function_bodies = off;
-- Tables of Leasehold, in the schema "leasehold" (which the migrator makes). They are not a public interface: the functions and the views are.
--
-- The shape was chosen by measuring (ARCHITECTURE.md, "Storage"): the live row is narrow and is changed in place (HOT), so
-- no index may name a column that claiming changes; a lease is one row a batch, not one a job; a finished job moves to a
-- history that is dropped by the day.

create type leasehold.job_state as enum ('queued', 'running', 'done', 'dead', 'cancelled');
create type leasehold.module_kind as enum ('component', 'command');

-- Whose modules and jobs they are.
create table leasehold.tenants (
    tenant_id   int generated always as identity primary key,
    name        text collate "C" not null unique,
    created_at  timestamptz not null default now(),
    constraint tenants_name_is_1_to_63_plain_characters check (name ~ '^[a-z0-9][a-z0-9_.-]{0,62}$')
);
insert into leasehold.tenants (name) values ('default');

-- A named upload. Its code is in module_versions; one version is active, or none while the module is switched off.
create table leasehold.modules (
    tenant_id       int not null references leasehold.tenants,
    module_id       int generated always as identity primary key,
    name            text collate "C",        -- null once removed
    removed_name    text collate "C",        -- what it was called: finished jobs still name it
    active_version  int,
    created_at      timestamptz not null default now(),
    constraint modules_named_or_removed check ((name is null) = (removed_name is not null)),
    constraint modules_name_is_unique_in_its_tenant unique (tenant_id, name),
    constraint modules_name_is_1_to_63_plain_characters check (name ~ '^[a-z0-9][a-z0-9_.-]{0,62}$')
);

-- The bytes as they were uploaded, once a tenant and digest; never compiled code. Two tenants never share a row: whether
-- somebody else uploaded the same bytes is nobody's business.
create table leasehold.module_bytes (
    tenant_id  int not null references leasehold.tenants,
    digest     bytea not null,
    bytes      bytea not null,
    primary key (tenant_id, digest),
    constraint module_bytes_digest_is_their_sha256 check (digest = sha256(bytes))
);
alter table leasehold.module_bytes alter column bytes set storage external; -- wasm compresses badly

-- A version never changes: what a job was pinned to runs the same way for ever.
create table leasehold.module_versions (
    tenant_id     int not null,
    module_id     int not null references leasehold.modules on delete cascade,
    version       int not null,
    digest        bytea not null,
    kind          leasehold.module_kind not null,
    fuel          bigint not null,          -- instructions a run may execute
    memory_bytes  bigint not null,          -- linear memory and tables a run may hold
    timeout_ms    int not null,             -- wall-clock milliseconds a run may take
    result_bytes  bigint not null,          -- size of a result
    log_bytes     int not null,             -- how much of a run's output is kept
    on_failure    jsonb not null default '{}',  -- {"fuel": "fail"}: ends that differ from the trap table's
    imports       text[] not null default '{}',
    created_at    timestamptz not null default now(),
    primary key (module_id, version),
    foreign key (tenant_id, digest) references leasehold.module_bytes (tenant_id, digest),
    constraint module_versions_limits_are_positive
        check (version > 0 and fuel > 0 and memory_bytes > 0 and timeout_ms > 0 and result_bytes >= 0 and log_bytes >= 0)
);
alter table leasehold.modules add constraint modules_active_version_exists
    foreign key (module_id, active_version) references leasehold.module_versions (module_id, version) deferrable initially deferred;

-- One row a worker process; a restarted worker is a new one.
create table leasehold.workers (
    worker_id   bigint generated always as identity primary key,
    host        text not null,
    pid         int not null,
    version     text not null,
    queues      text[] not null,
    slots       int not null,
    started_at  timestamptz not null default now(),
    seen_at     timestamptz not null default now()  -- the last heartbeat
) with (fillfactor = 50);

-- Jobs that are queued or running. A finished job is in history.
create table leasehold.live_jobs (
    tenant_id          int not null,
    module_id          int not null,
    id                 bigint generated always as identity,
    priority           smallint not null,
    attempt            int not null default 0,      -- runs that counted
    max_attempts       int not null,
    lease_no           int not null default 0,      -- grows at each claim: the fencing token
    crash_count        int not null default 0,      -- runs that ended with their worker
    timeout_ms         int,                         -- null: the module's
    backoff_ms         int,                         -- delay after the first failure; null: the default
    version            int,                         -- the pinned version, while running the one that runs; null: whichever is active
    running            boolean not null default false,
    cancel_requested   boolean not null default false,
    version_pinned     boolean not null default false,
    run_at             timestamptz not null,        -- not before; also the place in the queue
    enqueued_at        timestamptz not null,
    started_at         timestamptz,
    claim_id           bigint,
    queue              text collate "C" not null,
    payload            bytea not null,
    constraint live_jobs_pkey primary key (id),
    constraint live_jobs_leased_iff_running check (running = (claim_id is not null) and running = (started_at is not null)),
    constraint live_jobs_attempt_within_max check (attempt between 0 and max_attempts),
    constraint live_jobs_attempts_left_when_queued check (running or attempt < max_attempts),
    constraint live_jobs_attempts_were_claims check (attempt <= lease_no),
    constraint live_jobs_cancel_requested_only_while_running check (running or not cancel_requested),
    constraint live_jobs_versioned_when_running_or_pinned check ((version is not null) = (running or version_pinned)),
    -- Half of what one claim brings: a worker holds the payloads of all jobs that it has claimed.
    constraint live_jobs_payload_fits_into_a_claim check (octet_length(payload) <= 16777216),
    constraint live_jobs_priority_in_range check (priority between -100 and 100),
    constraint live_jobs_queue_is_1_to_63_plain_characters check (queue ~ '^[a-z0-9][a-z0-9_.-]{0,62}$')
) with (
    fillfactor = 50,                              -- room on the page for the claim's new row version: HOT, no index touched
    autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_insert_scale_factor = 0.2, autovacuum_analyze_scale_factor = 0.05,
    autovacuum_vacuum_cost_delay = 0
);
-- The claim's whole ORDER BY, and nothing that a claim changes.
create index live_jobs_claim on leasehold.live_jobs (queue, priority desc, run_at, id);

-- Which (queue, priority) pairs have ever held a job. A claimer goes through them one by one, each from its own lower
-- bound. No unique index: two first comers write two equal rows instead of waiting for each other's transaction.
create table leasehold.lanes (
    queue     text collate "C" not null,
    priority  smallint not null
);
create index lanes_by_queue on leasehold.lanes (queue, priority);

-- The leases: one row a claimed batch, deleted when its last job is settled.
create table leasehold.claims (
    claim_id      bigint generated always as identity primary key,
    worker_id     bigint not null,
    locked_until  timestamptz not null,
    job_ids       bigint[] not null,
    lease_nos     int[] not null,
    constraint claims_one_lease_number_a_job check (cardinality(job_ids) = cardinality(lease_nos))
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_cost_delay = 0);

-- Workers that want a NOTIFY for a queue. A busy worker takes its row away, so a busy system notifies nobody.
create table leasehold.sleepers (
    queue      text collate "C" not null,
    worker_id  bigint not null,
    until      timestamptz not null,        -- a dead worker's row stops counting
    primary key (queue, worker_id)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 50);

-- Finished jobs, by the day they finished.
create table leasehold.history (
    tenant_id          int not null,
    module_id          int not null,
    id                 bigint not null,
    state              leasehold.job_state not null,
    priority           smallint not null,
    attempt            int not null,
    max_attempts       int not null,
    lease_no           int not null,
    crash_count        int not null,
    timeout_ms         int,
    backoff_ms         int,
    version            int,                     -- the version that ran last
    version_pinned     boolean not null,
    run_at             timestamptz not null,
    enqueued_at        timestamptz not null,
    started_at         timestamptz,             -- of the last run; null when it never ran
    finished_at        timestamptz not null,
    worker_id          bigint,
    fuel               bigint,
    wall_us            bigint,
    cpu_us             bigint,
    memory_peak_bytes  bigint,
    queue              text collate "C" not null,
    failure_kind       text,
    error              text,
    payload            bytea not null,
    result             bytea,
    constraint history_pkey primary key (id, finished_at),
    constraint history_is_finished check (state in ('done', 'dead', 'cancelled')),
    constraint history_error_iff_dead check ((failure_kind is not null) = (state = 'dead')),
    constraint history_result_only_when_done check (result is null or state = 'done')
) partition by range (finished_at);
create table leasehold.history_default partition of leasehold.history default;

-- Runs that left something to tell: all that did not end well, and those with a log. Bounded by the module's log_bytes and
-- by the bounds of the settling functions.
create table leasehold.attempts (
    tenant_id          int not null,
    job_id             bigint not null,
    lease_no           int not null,
    attempt            int not null,
    outcome            text not null,           -- done, fail, dead, snooze, release, cancelled, crash
    version            int,
    worker_id          bigint,
    started_at         timestamptz not null,
    finished_at        timestamptz not null,
    failure_kind       text,
    message            text,
    backtrace          text,
    log                text,                    -- what the guest wrote, made storable by the worker
    log_dropped_bytes  bigint not null default 0,
    fuel               bigint,
    wall_us            bigint,
    cpu_us             bigint,
    memory_peak_bytes  bigint,
    result_bytes       bigint,
    constraint attempts_pkey primary key (job_id, lease_no, finished_at)
) partition by range (finished_at);
create table leasehold.attempts_default partition of leasehold.attempts default;
-- Makes a version the active one: unpinned jobs that are claimed from now on run it. Null switches the module off: its jobs
-- stay queued. Answers the version that was active before. LH002: no such module or version.
create or replace function leasehold.activate_module(p_tenant text, p_name text, p_version int) returns int
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_module record;
begin
    select m.* into v_module from leasehold.modules m join leasehold.tenants t using (tenant_id)
     where t.name = p_tenant and m.name = p_name for update of m;
    if not found then
        raise exception 'tenant % has no module named %', quote_literal(p_tenant), quote_literal(p_name) using errcode = 'LH002';
    elsif p_version is not null and not exists (
        select from leasehold.module_versions v where v.module_id = v_module.module_id and v.version = p_version) then
        raise exception 'module % of tenant % has no version %', quote_literal(p_name), quote_literal(p_tenant), p_version
            using errcode = 'LH002', hint = 'list its versions with: leasehold module show NAME';
    end if;
    update leasehold.modules m set active_version = p_version where m.module_id = v_module.module_id;
    if p_version is not null then
        perform leasehold.wake(q.queue) from (select distinct l.queue from leasehold.lanes l) q;
    end if;
    return v_module.active_version;
end $$;
-- A guest's bytes as a JSON value: themselves when they are JSON, else a JSON string when they are text, else null. A guest
-- may return anything, and a view must not fail on it. Numbers are printed without exponents, so eight bytes like 1e131071
-- become 131072, and 55 MB of 1e99 more than the server can send; JSON that would grow by over ten million digits stays text.
create or replace function leasehold.as_json(p_bytes bytea) returns jsonb
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
declare
    v_text text;
begin
    v_text := convert_from(p_bytes, 'UTF8');
    if (select coalesce(sum(case when length(m[1]) > 6 then 1e8 else m[1]::int end), 0)
          from regexp_matches(v_text, '[eE][+-]?([0-9]+)', 'g') m) > 1e7 then
        return to_jsonb(v_text);
    end if;
    return v_text::jsonb;
exception when others then
    return to_jsonb(v_text);  -- null when it is not even text
end $$;
-- running -> dead, for a batch of runs: the same run would end the same way again, or no attempt is left. Answers the ids
-- that were settled. Messages and backtraces are text that the worker has made storable.
create or replace function leasehold.bury(
    p_worker_id bigint, p_ids bigint[], p_lease_nos int[], p_failure_kinds text[], p_messages text[], p_backtraces text[],
    p_fuel bigint[], p_wall_us bigint[], p_cpu_us bigint[], p_memory_peak_bytes bigint[], p_logs text[], p_log_dropped_bytes bigint[]
) returns setof bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off set lock_timeout = '100ms'
as $$
begin
    return query
        with ended as (
            delete from leasehold.live_jobs j
             using unnest(p_ids, p_lease_nos, p_failure_kinds, p_messages, p_backtraces, p_fuel, p_wall_us, p_cpu_us, p_memory_peak_bytes,
                          p_logs, p_log_dropped_bytes)
                   r(run_id, run_lease_no, failure_kind, message, backtrace, fuel, wall_us, cpu_us, memory_peak_bytes, log, log_dropped_bytes)
             where j.id = r.run_id and j.lease_no = r.run_lease_no and j.running
            returning j.*, r.*
        ), attempts as (
            insert into leasehold.attempts (tenant_id, job_id, lease_no, attempt, outcome, version, worker_id, started_at, finished_at,
                                            failure_kind, message, backtrace, log, log_dropped_bytes, fuel, wall_us, cpu_us, memory_peak_bytes)
            select e.tenant_id, e.id, e.lease_no, e.attempt, 'dead', e.version, p_worker_id, e.started_at, clock_timestamp(),
                   e.failure_kind, e.message, e.backtrace, e.log, e.log_dropped_bytes, e.fuel, e.wall_us, e.cpu_us, e.memory_peak_bytes
              from ended e
        )
        insert into leasehold.history (tenant_id, module_id, id, state, priority, attempt, max_attempts, lease_no, crash_count, timeout_ms,
                                       backoff_ms, version, version_pinned, run_at, enqueued_at, started_at, finished_at, worker_id,
                                       fuel, wall_us, cpu_us, memory_peak_bytes, queue, payload, failure_kind, error)
        select e.tenant_id, e.module_id, e.id, 'dead', e.priority, e.attempt, e.max_attempts, e.lease_no, e.crash_count, e.timeout_ms,
               e.backoff_ms, e.version, e.version_pinned, e.run_at, e.enqueued_at, e.started_at, clock_timestamp(), p_worker_id,
               e.fuel, e.wall_us, e.cpu_us, e.memory_peak_bytes, e.queue, e.payload, e.failure_kind, e.message
          from ended e
        returning history.id;
end $$;
-- queued -> cancelled at once; a running job is asked to stop through its worker's heartbeat (and a NOTIFY, so that it need
-- not wait for one), given a grace period, then interrupted. Answers the state the job is in after the call: cancelled,
-- running (asked), or the end it had reached before. LH004: there is no such job.
create or replace function leasehold.cancel(job_id bigint) returns leasehold.job_state
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_running boolean;
    v_state leasehold.job_state;
begin
    select j.running into v_running from leasehold.live_jobs j where j.id = job_id for update;
    if not found then
        select h.state into v_state from leasehold.history h where h.id = job_id order by h.finished_at desc limit 1;
        if not found then
            raise exception 'there is no job %', job_id using errcode = 'LH004';
        end if;
        return v_state;
    elsif v_running then
        update leasehold.live_jobs j set cancel_requested = true where j.id = job_id;
        perform pg_notify('leasehold_cancel', job_id::text);
        return 'running';
    end if;
    perform leasehold.move_to_cancelled(job_id, null, null, null, null, null);
    return 'cancelled';
end $$;
-- Checks what enqueue and enqueue_many were asked for and looks up the ids. Changes nothing but lanes: a first job of a
-- (queue, priority) pair makes its lane known to the claimers.
create or replace function leasehold.check_enqueue(
    p_module text, p_tenant text, p_queue text, p_priority int, p_max_attempts int, p_timeout interval, p_backoff interval,
    p_version int, out tenant_id int, out module_id int, out timeout_ms int, out backoff_ms int
)
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
    select t.tenant_id, m.module_id into tenant_id, module_id
      from leasehold.tenants t left join leasehold.modules m on m.tenant_id = t.tenant_id and m.name = p_module
     where t.name = p_tenant;
    if tenant_id is null then
        raise exception 'no tenant is named %', coalesce(quote_literal(left(p_tenant, 80)), 'null')
            using errcode = 'LH001', hint = 'create it with: leasehold tenant create NAME';
    elsif module_id is null then
        raise exception 'tenant % has no module named %', quote_literal(p_tenant), coalesce(quote_literal(left(p_module, 80)), 'null')
            using errcode = 'LH002', hint = 'upload it with: leasehold module push NAME FILE --tenant TENANT';
    elsif p_version is not null and not exists (
        select from leasehold.module_versions v where v.module_id = check_enqueue.module_id and v.version = p_version) then
        raise exception 'module % of tenant % has no version %', quote_literal(p_module), quote_literal(p_tenant), p_version
            using errcode = 'LH002', hint = 'list its versions with: leasehold module show NAME';
    elsif p_priority is null or p_priority not between -100 and 100 then
        raise exception 'priority % is outside -100 to 100', p_priority using errcode = 'LH003';
    elsif p_max_attempts is null or p_max_attempts not between 1 and 1000 then
        raise exception 'max_attempts % is outside 1 to 1000', p_max_attempts using errcode = 'LH003';
    end if;
    if p_timeout is not null then
        timeout_ms := leasehold.milliseconds('timeout', p_timeout, 1);
    end if;
    if p_backoff is not null then
        backoff_ms := leasehold.milliseconds('backoff', p_backoff, 0);
    end if;
    -- The name of a queue that has a lane was found good when its first job came.
    if not exists (select from leasehold.lanes l where l.queue = p_queue and l.priority = p_priority::smallint) then
        if p_queue is null or p_queue !~ '^[a-z0-9][a-z0-9_.-]{0,62}$' then
            raise exception 'queue name % is not 1 to 63 characters of a-z, 0-9, "_", "." and "-"', coalesce(quote_literal(left(p_queue, 80)), 'null')
                using errcode = 'LH003';
        end if;
        insert into leasehold.lanes values (p_queue, p_priority);
    end if;
end $$;
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
-- A claim waits for the disk, where the session does: one that a crash of the server took back would leave its worker with a
-- lease number that is then given out again, and two workers with one fencing token.
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
-- running -> done, for a batch of runs. Answers the ids that were settled; one that is missing had lost its lease, and
-- nothing of it was written. Logs are null where there was no output.
create or replace function leasehold.complete(
    p_worker_id bigint, p_ids bigint[], p_lease_nos int[], p_results bytea[],
    p_fuel bigint[], p_wall_us bigint[], p_cpu_us bigint[], p_memory_peak_bytes bigint[], p_logs text[], p_log_dropped_bytes bigint[]
) returns setof bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off set lock_timeout = '100ms'
as $$
begin
    return query
        with ended as (
            delete from leasehold.live_jobs j
             using unnest(p_ids, p_lease_nos, p_results, p_fuel, p_wall_us, p_cpu_us, p_memory_peak_bytes, p_logs, p_log_dropped_bytes)
                   r(run_id, run_lease_no, result, fuel, wall_us, cpu_us, memory_peak_bytes, log, log_dropped_bytes)
             where j.id = r.run_id and j.lease_no = r.run_lease_no and j.running
            returning j.*, r.*
        ), attempts as (
            insert into leasehold.attempts (tenant_id, job_id, lease_no, attempt, outcome, version, worker_id, started_at, finished_at,
                                            log, log_dropped_bytes, fuel, wall_us, cpu_us, memory_peak_bytes, result_bytes)
            select e.tenant_id, e.id, e.lease_no, e.attempt, 'done', e.version, p_worker_id, e.started_at, clock_timestamp(),
                   e.log, e.log_dropped_bytes, e.fuel, e.wall_us, e.cpu_us, e.memory_peak_bytes, octet_length(e.result)
              from ended e where e.log is not null
        )
        insert into leasehold.history (tenant_id, module_id, id, state, priority, attempt, max_attempts, lease_no, crash_count, timeout_ms,
                                       backoff_ms, version, version_pinned, run_at, enqueued_at, started_at, finished_at, worker_id,
                                       fuel, wall_us, cpu_us, memory_peak_bytes, queue, payload, result)
        select e.tenant_id, e.module_id, e.id, 'done', e.priority, e.attempt, e.max_attempts, e.lease_no, e.crash_count, e.timeout_ms,
               e.backoff_ms, e.version, e.version_pinned, e.run_at, e.enqueued_at, e.started_at, clock_timestamp(), p_worker_id,
               e.fuel, e.wall_us, e.cpu_us, e.memory_peak_bytes, e.queue, e.payload, e.result
          from ended e
        returning history.id;
end $$;
-- - -> queued. Called by producers, in their own transaction; answers the job's id.
--
-- Three overloads: payload as jsonb, as text that holds JSON (an untyped literal lands here), and as bytea (raw bytes).
-- Their bodies are parsed when they are made, so no caller's search_path can change what they call.
-- Refusals have an SQLSTATE of their own: LH001 no such tenant, LH002 no such module or version, LH003 a bad argument.

-- The one place that inserts a job. Ids of module and tenant are looked up here, so a caller can't forge them.
create or replace function leasehold.enqueue_bytes(
    p_module text, p_payload bytea, p_tenant text, p_queue text, p_priority int, p_run_at timestamptz, p_max_attempts int,
    p_timeout interval, p_backoff interval, p_version int
) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_job record;
    v_id bigint;
    v_now timestamptz;
begin
    v_job := leasehold.check_enqueue(p_module, p_tenant, p_queue, p_priority, p_max_attempts, p_timeout, p_backoff, p_version);
    if p_payload is null then
        raise exception 'payload is null' using errcode = 'LH003', hint = 'leave the argument out for an empty JSON object';
    elsif octet_length(p_payload) > 16777216 then  -- live_jobs_payload_fits_into_a_claim, in words
        raise exception 'payload of % bytes exceeds the limit of 16777216 bytes', octet_length(p_payload)
            using errcode = 'LH003', hint = 'store it elsewhere and pass where';
    end if;
    -- The transaction's id comes before its clock reading: whoever sees in a snapshot that all older transactions have
    -- ended knows that no job with an earlier run_at can still appear (see claim).
    perform pg_catalog.pg_current_xact_id();
    v_now := clock_timestamp();
    insert into leasehold.live_jobs (tenant_id, module_id, queue, priority, run_at, enqueued_at, max_attempts, timeout_ms,
                                     backoff_ms, version, version_pinned, payload)
    values (v_job.tenant_id, v_job.module_id, p_queue, p_priority, greatest(p_run_at, v_now), v_now, p_max_attempts,
            v_job.timeout_ms, v_job.backoff_ms, p_version, p_version is not null, p_payload)
    returning id into v_id;
    if p_run_at is null or p_run_at <= v_now then
        perform leasehold.wake(p_queue);
    end if;
    return v_id;
end $$;

create or replace function leasehold.enqueue(
    module text, payload jsonb default '{}', tenant text default 'default', queue text default 'default',
    priority int default 0, run_at timestamptz default null, max_attempts int default 5, timeout interval default null,
    backoff interval default null, version int default null
) returns bigint
language sql volatile
return leasehold.enqueue_bytes(module, convert_to(payload::text, 'UTF8'), tenant, queue, priority, run_at, max_attempts, timeout, backoff, version);

create or replace function leasehold.enqueue(
    module text, payload text, tenant text default 'default', queue text default 'default',
    priority int default 0, run_at timestamptz default null, max_attempts int default 5, timeout interval default null,
    backoff interval default null, version int default null
) returns bigint
language sql volatile
return leasehold.enqueue_bytes(module, convert_to(payload::jsonb::text, 'UTF8'), tenant, queue, priority, run_at, max_attempts, timeout, backoff, version);

create or replace function leasehold.enqueue(
    module text, payload bytea, tenant text default 'default', queue text default 'default',
    priority int default 0, run_at timestamptz default null, max_attempts int default 5, timeout interval default null,
    backoff interval default null, version int default null
) returns bigint
language sql volatile
return leasehold.enqueue_bytes(module, payload, tenant, queue, priority, run_at, max_attempts, timeout, backoff, version);
-- - -> queued, for many jobs of one module in one statement: answers their ids in the order of the payloads. Same options
-- and refusals as enqueue; the jobs are due in the order of the payloads.
create or replace function leasehold.enqueue_many(
    module text, payloads jsonb[], tenant text default 'default', queue text default 'default',
    priority int default 0, run_at timestamptz default null, max_attempts int default 5, timeout interval default null,
    backoff interval default null, version int default null
) returns setof bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_job record;
    v_payloads bytea[];
    v_large record;
    v_now timestamptz;
begin
    v_job := leasehold.check_enqueue(module, tenant, queue, priority, max_attempts, timeout, backoff, version);
    if payloads is null then
        raise exception 'payloads is null' using errcode = 'LH003', hint = 'pass an empty array for no jobs';
    elsif array_ndims(payloads) > 1 then
        raise exception 'payloads has % dimensions; it must have 1', array_ndims(payloads) using errcode = 'LH003';
    elsif array_position(payloads, null) is not null then
        raise exception 'payload number % is null', array_position(payloads, null) - array_lower(payloads, 1) + 1 using errcode = 'LH003';
    end if;
    v_payloads := array(select convert_to(p::text, 'UTF8') from unnest(payloads) p);
    select n, octet_length(p) as bytes into v_large from unnest(v_payloads) with ordinality u(p, n) where octet_length(p) > 16777216 limit 1;
    if found then
        raise exception 'payload number % of % bytes exceeds the limit of 16777216 bytes', v_large.n, v_large.bytes
            using errcode = 'LH003', hint = 'store it elsewhere and pass where';
    end if;
    perform pg_catalog.pg_current_xact_id();  -- before the clock, as in enqueue
    v_now := clock_timestamp();
    return query
        insert into leasehold.live_jobs (tenant_id, module_id, queue, priority, run_at, enqueued_at, max_attempts, timeout_ms,
                                         backoff_ms, version, version_pinned, payload)
        select v_job.tenant_id, v_job.module_id, enqueue_many.queue, enqueue_many.priority, greatest(enqueue_many.run_at, v_now),
               v_now, enqueue_many.max_attempts, v_job.timeout_ms, v_job.backoff_ms, enqueue_many.version,
               enqueue_many.version is not null, p
          from unnest(v_payloads) as p
        returning live_jobs.id;
    if cardinality(payloads) > 0 and (run_at is null or run_at <= v_now) then
        perform leasehold.wake(queue);
    end if;
end $$;
-- running -> queued with attempts left, running -> dead at the last attempt, for a batch of runs. A job that was asked to
-- cancel is cancelled instead: what was asked of a running job holds for a queued one. Answers the ids that were settled, each
-- with the state it came to. The delay counts from now by this server's clock.
create or replace function leasehold.fail(
    p_worker_id bigint, p_ids bigint[], p_lease_nos int[], p_delays_ms bigint[], p_failure_kinds text[], p_messages text[], p_backtraces text[],
    p_fuel bigint[], p_wall_us bigint[], p_cpu_us bigint[], p_memory_peak_bytes bigint[], p_logs text[], p_log_dropped_bytes bigint[]
) returns table (id bigint, state leasehold.job_state)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off set lock_timeout = '100ms'
as $$
begin
    return query
        select c, 'cancelled'::leasehold.job_state
          from leasehold.finish_cancel(p_worker_id, p_ids, p_lease_nos, p_fuel, p_wall_us, p_cpu_us, p_memory_peak_bytes, p_logs, p_log_dropped_bytes) c;
    -- The attempt's record is written from the row as it was while it ran; the lock keeps it so.
    return query
        with held as (
            select j.*, r.*
              from unnest(p_ids, p_lease_nos, p_delays_ms, p_failure_kinds, p_messages, p_backtraces, p_fuel, p_wall_us, p_cpu_us,
                          p_memory_peak_bytes, p_logs, p_log_dropped_bytes)
                   r(run_id, run_lease_no, delay_ms, failure_kind, message, backtrace, fuel, wall_us, cpu_us, memory_peak_bytes, log, log_dropped_bytes)
              join leasehold.live_jobs j on j.id = r.run_id and j.lease_no = r.run_lease_no and j.running
             where j.attempt < j.max_attempts
               for update of j
        ), attempts as (
            insert into leasehold.attempts (tenant_id, job_id, lease_no, attempt, outcome, version, worker_id, started_at, finished_at,
                                            failure_kind, message, backtrace, log, log_dropped_bytes, fuel, wall_us, cpu_us, memory_peak_bytes)
            select h.tenant_id, h.id, h.lease_no, h.attempt, 'fail', h.version, p_worker_id, h.started_at, clock_timestamp(),
                   h.failure_kind, h.message, h.backtrace, h.log, h.log_dropped_bytes, h.fuel, h.wall_us, h.cpu_us, h.memory_peak_bytes
              from held h
        )
        update leasehold.live_jobs j
           set running = false, claim_id = null, started_at = null,
               version = case when j.version_pinned then j.version end,
               run_at = clock_timestamp() + h.delay_ms * interval '1 millisecond'
          from held h
         where j.id = h.id
        returning j.id, 'queued'::leasehold.job_state;
    return query
        select b, 'dead'::leasehold.job_state
          from leasehold.bury(p_worker_id, p_ids, p_lease_nos, p_failure_kinds, p_messages, p_backtraces, p_fuel, p_wall_us, p_cpu_us,
                              p_memory_peak_bytes, p_logs, p_log_dropped_bytes) b;
end $$;
-- Changes nothing. Looks below a claimer's bounds for jobs that wait there: of a claim that was rolled back, of a module
-- that was switched on again, or after the server's clock went back. Answers the lanes that have one, with the place just
-- before it; the claimer then lowers its bound. Walks over whatever an open snapshot keeps in the index, so a worker calls
-- it seldom, and the more seldom the longer it takes.
create or replace function leasehold.find_stragglers(
    p_lane_queues text[], p_lane_priorities int[], p_lane_run_ats timestamptz[], p_lane_ids bigint[]
) returns table (queue text, priority int, run_at timestamptz, id bigint)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
    v_inactive int[];
    v_lane record;
begin
    select array_agg(m.module_id) into v_inactive from leasehold.modules m where m.active_version is null;
    for v_lane in select * from unnest(p_lane_queues, p_lane_priorities::smallint[], p_lane_run_ats, p_lane_ids) b(queue, priority, run_at, id) loop
        select j.queue, j.priority, j.run_at, j.id - 1 into queue, priority, run_at, id from leasehold.live_jobs j
         where j.queue = v_lane.queue and j.priority = v_lane.priority and (j.run_at, j.id) <= (v_lane.run_at, v_lane.id)
           and not j.running and (v_inactive is null or j.module_id <> all(v_inactive))
         order by j.run_at, j.id limit 1;
        if found then
            return next;
        end if;
    end loop;
end $$;
-- running -> cancelled, for those of a batch of runs that were asked to stop and have ended. Answers the ids that were settled.
create or replace function leasehold.finish_cancel(
    p_worker_id bigint, p_ids bigint[], p_lease_nos int[],
    p_fuel bigint[], p_wall_us bigint[], p_cpu_us bigint[], p_memory_peak_bytes bigint[], p_logs text[], p_log_dropped_bytes bigint[]
) returns setof bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off set lock_timeout = '100ms'
as $$
declare
    v_run record;
begin
    for v_run in
        select j.*, r.*
          from unnest(p_ids, p_lease_nos, p_fuel, p_wall_us, p_cpu_us, p_memory_peak_bytes, p_logs, p_log_dropped_bytes)
               r(run_id, run_lease_no, fuel, wall_us, cpu_us, memory_peak_bytes, log, log_dropped_bytes)
          join leasehold.live_jobs j on j.id = r.run_id and j.lease_no = r.run_lease_no and j.running and j.cancel_requested
           for update of j
    loop
        insert into leasehold.attempts (tenant_id, job_id, lease_no, attempt, outcome, version, worker_id, started_at, finished_at,
                                        log, log_dropped_bytes, fuel, wall_us, cpu_us, memory_peak_bytes)
        values (v_run.tenant_id, v_run.id, v_run.lease_no, v_run.attempt, 'cancelled', v_run.version, p_worker_id, v_run.started_at,
                clock_timestamp(), v_run.log, v_run.log_dropped_bytes, v_run.fuel, v_run.wall_us, v_run.cpu_us, v_run.memory_peak_bytes);
        perform leasehold.move_to_cancelled(v_run.id, p_worker_id, v_run.fuel, v_run.wall_us, v_run.cpu_us, v_run.memory_peak_bytes);
        return next v_run.id;
    end loop;
end $$;
-- Changes nothing. Of a batch that could not be settled because somebody holds a lock: answers the jobs that nobody holds, so
-- that they need not wait for the others. A producer holds a running job's row from its cancel until its transaction ends,
-- which may be never; the settling functions wait for lock_timeout only. A job that is gone is answered too: whoever settles
-- it then hears that its lease is lost.
create or replace function leasehold.free_of_locks(p_ids bigint[]) returns setof bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off as $$
begin
    return query select j.id from leasehold.live_jobs j where j.id = any(p_ids) for update skip locked;
    return query select i from unnest(p_ids) i where not exists (select from leasehold.live_jobs j where j.id = i);
end $$;
-- running -> queued without counting the attempt, for a batch of runs: the one way behind snooze (the guest asked for it)
-- and release (a drain, or a fault of the worker's own; then p_crashed counts it towards the crash limit, so that a job which
-- breaks every worker is buried in the end). A job that was asked to cancel is cancelled instead. Answers the ids that were
-- settled.
create or replace function leasehold.give_back(
    p_worker_id bigint, p_outcome text, p_ids bigint[], p_lease_nos int[], p_delays_ms bigint[], p_crashed bool[], p_failure_kinds text[], p_messages text[],
    p_fuel bigint[], p_wall_us bigint[], p_cpu_us bigint[], p_memory_peak_bytes bigint[], p_logs text[], p_log_dropped_bytes bigint[]
) returns setof bigint
language plpgsql volatile set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off set lock_timeout = '100ms'
as $$
begin
    return query
        select leasehold.finish_cancel(p_worker_id, p_ids, p_lease_nos, p_fuel, p_wall_us, p_cpu_us, p_memory_peak_bytes, p_logs, p_log_dropped_bytes);
    return query
        with held as (
            select j.*, r.*
              from unnest(p_ids, p_lease_nos, p_delays_ms, p_crashed, p_failure_kinds, p_messages, p_fuel, p_wall_us, p_cpu_us,
                          p_memory_peak_bytes, p_logs, p_log_dropped_bytes)
                   r(run_id, run_lease_no, delay_ms, crashed, failure_kind, message, fuel, wall_us, cpu_us, memory_peak_bytes, log, log_dropped_bytes)
              join leasehold.live_jobs j on j.id = r.run_id and j.lease_no = r.run_lease_no and j.running
               for update of j
        ), attempts as (
            insert into leasehold.attempts (tenant_id, job_id, lease_no, attempt, outcome, version, worker_id, started_at, finished_at,
                                            failure_kind, message, log, log_dropped_bytes, fuel, wall_us, cpu_us, memory_peak_bytes)
            select h.tenant_id, h.id, h.lease_no, h.attempt, p_outcome, h.version, p_worker_id, h.started_at, clock_timestamp(),
                   h.failure_kind, h.message, h.log, h.log_dropped_bytes, h.fuel, h.wall_us, h.cpu_us, h.memory_peak_bytes
              from held h where h.log is not null or h.failure_kind is not null
        )
        update leasehold.live_jobs j
           set running = false, claim_id = null, started_at = null, attempt = j.attempt - 1,
               crash_count = j.crash_count + h.crashed::int,
               version = case when j.version_pinned then j.version end,
               run_at = clock_timestamp() + h.delay_ms * interval '1 millisecond'
          from held h
         where j.id = h.id
        returning j.id;
end $$;
-- running -> running. One statement a worker for all that it holds: extends its claims, says that it is alive, forgets the
-- claims whose jobs are all settled, and answers which of its jobs it no longer owns (lost) and which somebody asked to
-- cancel. A claim that was reaped is gone, so it can't be extended.
create or replace function leasehold.heartbeat(
    p_worker_id bigint, p_claim_ids bigint[], p_closed_claim_ids bigint[], p_lease_ms int, p_job_ids bigint[], p_lease_nos int[],
    out lost bigint[], out cancel bigint[]
)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set jit = off as $$
begin
    perform set_config('synchronous_commit', 'off', true);  -- a lost heartbeat is an older lease, nothing worse
    update leasehold.workers w set seen_at = clock_timestamp() where w.worker_id = p_worker_id;
    delete from leasehold.claims c where c.claim_id = any(p_closed_claim_ids) and c.worker_id = p_worker_id;
    update leasehold.claims c set locked_until = clock_timestamp() + p_lease_ms * interval '1 millisecond'
     where c.claim_id = any(p_claim_ids) and c.worker_id = p_worker_id;
    select array_agg(h.id) filter (where j.id is null), array_agg(h.id) filter (where j.cancel_requested) into lost, cancel
      from unnest(p_job_ids, p_lease_nos) h(id, lease_no)
      left join leasehold.live_jobs j on j.id = h.id and j.lease_no = h.lease_no and j.running
       and exists (select from leasehold.claims c where c.claim_id = j.claim_id);
    lost := coalesce(lost, '{}');
    cancel := coalesce(cancel, '{}');
end $$;
-- Makes the partitions of history and attempts for today and the next p_ahead days, and drops those whose last day ended more
-- than p_retention_days ago. Idempotent; one caller at a time, the others answer at once with nothing. Rows of a day without
-- a partition land in the default one, which keeps settling safe when nobody calls this for long. Answers what it did.
create or replace function leasehold.maintain_partitions(p_ahead int, p_retention_days int) returns setof text
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set lock_timeout = '2s' as $$
declare
    v_table text;
    v_day date;
    v_old record;
    v_today date := (now() at time zone 'UTC')::date;
begin
    if not pg_try_advisory_xact_lock(hashtext('leasehold.maintain_partitions')) then
        return;
    end if;
    foreach v_table in array array['history', 'attempts'] loop
        for v_day in select (v_today + d) from generate_series(0, p_ahead) d loop
            if to_regclass(format('leasehold.%I', v_table || '_' || to_char(v_day, 'YYYYMMDD'))) is null then
                begin
                    execute format('create table leasehold.%I (like leasehold.%I including defaults including constraints)', v_table || '_' || to_char(v_day, 'YYYYMMDD'), v_table);
                    execute format('alter table leasehold.%I attach partition leasehold.%I for values from (%L) to (%L)', v_table, v_table || '_' || to_char(v_day, 'YYYYMMDD'),
                                   v_day::timestamp at time zone 'UTC', (v_day + 1)::timestamp at time zone 'UTC');
                    return next format('created %s_%s', v_table, to_char(v_day, 'YYYYMMDD'));
                exception when check_violation then
                    -- Rows of that day already lie in the default partition; it keeps that day.
                    execute format('drop table if exists leasehold.%I', v_table || '_' || to_char(v_day, 'YYYYMMDD'));
                end;
            end if;
        end loop;
        for v_old in
            select c.oid::regclass as name, c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid
             where i.inhparent = format('leasehold.%I', v_table)::regclass and c.relname ~ '_\d{8}$'
               and to_date(right(c.relname, 8), 'YYYYMMDD') < v_today - p_retention_days
        loop
            execute format('drop table %s', v_old.name);
            return next format('dropped %s', v_old.relname);
        end loop;
        execute format('delete from leasehold.%I where finished_at < now() - %L::interval', v_table || '_default', make_interval(days => p_retention_days));
    end loop;
end $$;
-- An argument's interval in whole milliseconds, or a refusal that names it. At most a day: a run of more than that belongs
-- into several jobs.
create or replace function leasehold.milliseconds(p_name text, p_interval interval, p_least int) returns int
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
    if extract(epoch from p_interval) * 1000 not between p_least and 86400000 then
        raise exception '% of % is outside % ms to 24 hours', p_name, p_interval, p_least using errcode = 'LH003';
    end if;
    return extract(epoch from p_interval) * 1000;
end $$;
-- A live job to history as cancelled, whatever it was doing; the one way behind cancel and finish_cancel, which hold the
-- guards. Internal: not granted to anyone.
create or replace function leasehold.move_to_cancelled(p_id bigint, p_worker_id bigint, p_fuel bigint, p_wall_us bigint, p_cpu_us bigint, p_memory_peak_bytes bigint)
returns void
language sql volatile set search_path = pg_catalog, pg_temp as $$
    with ended as (
        delete from leasehold.live_jobs j where j.id = p_id returning j.*
    )
    insert into leasehold.history (tenant_id, module_id, id, state, priority, attempt, max_attempts, lease_no, crash_count, timeout_ms,
                                   backoff_ms, version, version_pinned, run_at, enqueued_at, started_at, finished_at, worker_id,
                                   fuel, wall_us, cpu_us, memory_peak_bytes, queue, payload)
    select e.tenant_id, e.module_id, e.id, 'cancelled', e.priority, e.attempt, e.max_attempts, e.lease_no, e.crash_count, e.timeout_ms,
           e.backoff_ms, e.version, e.version_pinned, e.run_at, e.enqueued_at, e.started_at, clock_timestamp(), p_worker_id,
           p_fuel, p_wall_us, p_cpu_us, p_memory_peak_bytes, e.queue, e.payload
      from ended e;
$$;
-- Uploads a version of a module, makes the module when it is new, and makes the version the active one unless told not to.
-- The same bytes with the same settings as the newest version answer that version again. Answers the version's number.
-- LH001: no such tenant. LH003: a bad name.
create or replace function leasehold.push_module(
    p_tenant text, p_name text, p_kind text, p_bytes bytea, p_fuel bigint, p_memory_bytes bigint, p_timeout_ms int,
    p_result_bytes bigint, p_log_bytes int, p_on_failure jsonb, p_imports text[], p_activate boolean,
    out version int, out created boolean
)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_tenant_id int;
    v_module record;
    v_newest record;
    v_digest bytea := sha256(p_bytes);
begin
    select t.tenant_id into v_tenant_id from leasehold.tenants t where t.name = p_tenant;
    if not found then
        raise exception 'no tenant is named %', quote_literal(p_tenant)
            using errcode = 'LH001', hint = 'create it with: leasehold tenant create NAME';
    end if;
    if p_name is null or p_name !~ '^[a-z0-9][a-z0-9_.-]{0,62}$' then
        raise exception 'module name % is not 1 to 63 characters of a-z, 0-9, "_", "." and "-"', coalesce(quote_literal(left(p_name, 80)), 'null')
            using errcode = 'LH003';
    end if;
    insert into leasehold.modules (tenant_id, name) values (v_tenant_id, p_name)
        on conflict on constraint modules_name_is_unique_in_its_tenant do nothing;
    -- The lock makes concurrent uploads of one module take turns for their version numbers.
    select m.* into v_module from leasehold.modules m where m.tenant_id = v_tenant_id and m.name = p_name for update;
    select v.* into v_newest from leasehold.module_versions v where v.module_id = v_module.module_id order by v.version desc limit 1;
    if found and (v_newest.digest, v_newest.fuel, v_newest.memory_bytes, v_newest.timeout_ms, v_newest.result_bytes, v_newest.log_bytes, v_newest.on_failure)
               = (v_digest, p_fuel, p_memory_bytes, p_timeout_ms, p_result_bytes, p_log_bytes, p_on_failure) then
        version := v_newest.version;
        created := false;
    else
        insert into leasehold.module_bytes (tenant_id, digest, bytes) values (v_tenant_id, v_digest, p_bytes) on conflict do nothing;
        version := coalesce(v_newest.version, 0) + 1;
        created := true;
        insert into leasehold.module_versions (tenant_id, module_id, version, digest, kind, fuel, memory_bytes, timeout_ms, result_bytes, log_bytes, on_failure, imports)
        values (v_tenant_id, v_module.module_id, push_module.version, v_digest, p_kind::leasehold.module_kind, p_fuel, p_memory_bytes, p_timeout_ms,
                p_result_bytes, p_log_bytes, p_on_failure, p_imports);
    end if;
    if p_activate then
        update leasehold.modules m set active_version = push_module.version where m.module_id = v_module.module_id;
    end if;
end $$;
-- running -> queued or dead, for the jobs of claims whose lease ran out: their worker died, or lost the database for longer
-- than a lease. The attempt stays counted, and a crash count of its own buries a job that keeps ending its workers. A job
-- that was asked to cancel is cancelled. Idempotent; any number of workers may call it at once. Answers the jobs that moved.
-- A job that cannot be moved does not hold up the others: it stays as it is, with a warning, and is tried again in a minute;
-- one whose row somebody holds, without a warning and in a second.
create or replace function leasehold.reap(p_limit int, p_crash_limit int)
returns table (id bigint, state leasehold.job_state)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set jit = off as $$
declare
    v_claim record;
    v_run record;
    v_job record;
    v_message text;
    v_stuck interval;
begin
    for v_claim in
        select c.* from leasehold.claims c where c.locked_until < clock_timestamp() order by c.claim_id limit p_limit for update skip locked
    loop
        v_stuck := null;
        for v_run in select r.id, r.lease_no from unnest(v_claim.job_ids, v_claim.lease_nos) r(id, lease_no) loop
            begin
                -- Nowait: a producer's open transaction that cancelled the job holds its row.
                select j.* into v_job from leasehold.live_jobs j
                 where j.id = v_run.id and j.lease_no = v_run.lease_no and j.running and j.claim_id = v_claim.claim_id
                   for update nowait;
                continue when not found;
                v_message := format('the lease ran out %s s ago: worker %s died or lost the database in the middle of the run',
                                    round(extract(epoch from clock_timestamp() - v_claim.locked_until), 1), v_claim.worker_id);
                id := v_job.id;
                if v_job.cancel_requested then
                    insert into leasehold.attempts (tenant_id, job_id, lease_no, attempt, outcome, version, worker_id, started_at, finished_at, failure_kind, message)
                    values (v_job.tenant_id, v_job.id, v_job.lease_no, v_job.attempt, 'cancelled', v_job.version, v_claim.worker_id, v_job.started_at, clock_timestamp(), 'crash', v_message);
                    perform leasehold.move_to_cancelled(v_job.id, v_claim.worker_id, null, null, null, null);
                    state := 'cancelled';
                elsif v_job.crash_count + 1 >= p_crash_limit or v_job.attempt >= v_job.max_attempts then
                    if v_job.crash_count + 1 >= p_crash_limit then
                        v_message := v_message || format(' (crash number %s, the limit)', p_crash_limit);
                    end if;
                    update leasehold.live_jobs j set crash_count = j.crash_count + 1 where j.id = v_job.id;
                    perform leasehold.bury(v_claim.worker_id, array[v_job.id], array[v_job.lease_no], array['crash'], array[v_message], array[null::text],
                                           array[null::bigint], array[null::bigint], array[null::bigint], array[null::bigint], array[null::text], array[0::bigint]);
                    state := 'dead';
                else
                    insert into leasehold.attempts (tenant_id, job_id, lease_no, attempt, outcome, version, worker_id, started_at, finished_at, failure_kind, message)
                    values (v_job.tenant_id, v_job.id, v_job.lease_no, v_job.attempt, 'crash', v_job.version, v_claim.worker_id, v_job.started_at, clock_timestamp(), 'crash', v_message);
                    update leasehold.live_jobs j
                       set running = false, claim_id = null, started_at = null, crash_count = j.crash_count + 1,
                           version = case when j.version_pinned then j.version end, run_at = clock_timestamp()
                     where j.id = v_job.id;
                    perform leasehold.wake(v_job.queue);
                    state := 'queued';
                end if;
                return next;
            exception
                when lock_not_available then
                    v_stuck := coalesce(v_stuck, interval '1 second');
                when others then
                    raise warning 'job % cannot be reaped: %', v_run.id, sqlerrm;
                    v_stuck := interval '1 minute';
            end;
        end loop;
        if v_stuck is not null then
            update leasehold.claims c set locked_until = clock_timestamp() + v_stuck where c.claim_id = v_claim.claim_id;
        else
            delete from leasehold.claims c where c.claim_id = v_claim.claim_id;
        end if;
    end loop;
end $$;
-- running -> queued, without counting the attempt, for the jobs of claims that this worker made and does not know of: the
-- claim was committed, its answer got lost. Called by the claimer after a failed claim, while it has none under way. Answers
-- the jobs that were given back.
create or replace function leasehold.recover_claims(p_worker_id bigint, p_known_claim_ids bigint[]) returns setof bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_claim record;
    v_count int;
begin
    for v_claim in
        select c.* from leasehold.claims c where c.worker_id = p_worker_id and c.claim_id <> all(p_known_claim_ids) for update
    loop
        v_count := cardinality(v_claim.job_ids);
        return query
            select leasehold.give_back(p_worker_id, 'release', v_claim.job_ids, v_claim.lease_nos, array_fill(0::bigint, array[v_count]),
                                       array_fill(false, array[v_count]), array_fill(null::text, array[v_count]), array_fill(null::text, array[v_count]),
                                       array_fill(null::bigint, array[v_count]), array_fill(null::bigint, array[v_count]),
                                       array_fill(null::bigint, array[v_count]), array_fill(null::bigint, array[v_count]),
                                       array_fill(null::text, array[v_count]), array_fill(0::bigint, array[v_count]));
        delete from leasehold.claims c where c.claim_id = v_claim.claim_id;
    end loop;
end $$;
-- dead or cancelled -> queued, due at once. Attempts and crashes start anew; the lease number goes on, so a worker that still
-- holds an old lease stays fenced. Answers whether the job moved: false when it is not dead or cancelled. LH004: no such job.
-- LH002: its module was removed, so nothing could run it.
create or replace function leasehold.redrive(job_id bigint) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_job record;
    v_now timestamptz;
begin
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
    insert into leasehold.live_jobs (tenant_id, module_id, id, queue, priority, lease_no, max_attempts, timeout_ms, backoff_ms, version,
                                     version_pinned, run_at, enqueued_at, payload)
    overriding system value
    values (v_job.tenant_id, v_job.module_id, v_job.id, v_job.queue, v_job.priority, v_job.lease_no, v_job.max_attempts, v_job.timeout_ms,
            v_job.backoff_ms, case when v_job.version_pinned then v_job.version end, v_job.version_pinned, v_now, v_job.enqueued_at, v_job.payload);
    perform leasehold.wake(v_job.queue);
    return true;
end $$;
-- A worker process introduces itself and gets a fresh id, so a restarted one is never mistaken for its predecessor. Rows of
-- workers that were not seen for a day are dropped on the way.
create or replace function leasehold.register_worker(p_host text, p_pid int, p_version text, p_queues text[], p_slots int) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_worker_id bigint;
begin
    delete from leasehold.workers w where w.seen_at < clock_timestamp() - interval '1 day';
    insert into leasehold.workers (host, pid, version, queues, slots) values (p_host, p_pid, p_version, p_queues, p_slots)
    returning worker_id into v_worker_id;
    return v_worker_id;
end $$;
-- running -> queued, for a batch of runs that the worker itself ended: a drain, or a fault of its own (kind host), which
-- counts as a crash. The attempt is not counted. A job that was asked to cancel is cancelled instead, one over the crash
-- limit buried. Answers the ids that were settled, each with the state it came to.
create or replace function leasehold.release(
    p_worker_id bigint, p_ids bigint[], p_lease_nos int[], p_delays_ms bigint[], p_failure_kinds text[], p_messages text[], p_crash_limit int,
    p_fuel bigint[], p_wall_us bigint[], p_cpu_us bigint[], p_memory_peak_bytes bigint[], p_logs text[], p_log_dropped_bytes bigint[]
) returns table (id bigint, state leasehold.job_state)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set lock_timeout = '100ms' as $$
declare
    v_poison bigint[];
    v_poison_lease_nos int[];
begin
    return query
        select c, 'cancelled'::leasehold.job_state
          from leasehold.finish_cancel(p_worker_id, p_ids, p_lease_nos, p_fuel, p_wall_us, p_cpu_us, p_memory_peak_bytes, p_logs, p_log_dropped_bytes) c;
    select array_agg(j.id), array_agg(j.lease_no) into v_poison, v_poison_lease_nos
      from unnest(p_ids, p_lease_nos, p_failure_kinds) r(run_id, run_lease_no, failure_kind)
      join leasehold.live_jobs j on j.id = r.run_id and j.lease_no = r.run_lease_no and j.running
     where r.failure_kind is not null and j.crash_count + 1 >= p_crash_limit;
    if v_poison is not null then
        update leasehold.live_jobs j set crash_count = j.crash_count + 1 where j.id = any(v_poison);
        return query
            select b, 'dead'::leasehold.job_state
              from leasehold.bury(p_worker_id, v_poison, v_poison_lease_nos,
                array(select p_failure_kinds[array_position(p_ids, x)] from unnest(v_poison) x),
                array(select p_messages[array_position(p_ids, x)] || format(' (crash number %s, the limit)', p_crash_limit) from unnest(v_poison) x),
                array(select null::text from unnest(v_poison) x),
                array(select p_fuel[array_position(p_ids, x)] from unnest(v_poison) x),
                array(select p_wall_us[array_position(p_ids, x)] from unnest(v_poison) x),
                array(select p_cpu_us[array_position(p_ids, x)] from unnest(v_poison) x),
                array(select p_memory_peak_bytes[array_position(p_ids, x)] from unnest(v_poison) x),
                array(select p_logs[array_position(p_ids, x)] from unnest(v_poison) x),
                array(select p_log_dropped_bytes[array_position(p_ids, x)] from unnest(v_poison) x)) b;
    end if;
    return query
        select g, 'queued'::leasehold.job_state
          from leasehold.give_back(p_worker_id, 'release', p_ids, p_lease_nos, p_delays_ms,
                                   array(select k is not null from unnest(p_failure_kinds) k), p_failure_kinds, p_messages,
                                   p_fuel, p_wall_us, p_cpu_us, p_memory_peak_bytes, p_logs, p_log_dropped_bytes) g;
end $$;
-- Removes a module with all its versions and bytes. Refused (LH005) while jobs of it are queued or running, unless p_force,
-- which cancels the queued ones; running ones refuse it always. History keeps the finished jobs. Answers how many queued
-- jobs were cancelled. LH002: no such module.
create or replace function leasehold.remove_module(p_tenant text, p_name text, p_force boolean) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_module record;
    v_queued bigint;
    v_running bigint;
begin
    select m.* into v_module from leasehold.modules m join leasehold.tenants t using (tenant_id)
     where t.name = p_tenant and m.name = p_name for update of m;
    if not found then
        raise exception 'tenant % has no module named %', quote_literal(p_tenant), quote_literal(p_name) using errcode = 'LH002';
    end if;
    select count(*) filter (where not j.running), count(*) filter (where j.running) into v_queued, v_running
      from leasehold.live_jobs j where j.module_id = v_module.module_id;
    if v_running > 0 or (v_queued > 0 and not p_force) then
        raise exception 'module % has % queued and % running jobs', quote_literal(p_name), v_queued, v_running
            using errcode = 'LH005', hint = 'let the running ones end; --force cancels the queued ones';
    end if;
    perform leasehold.move_to_cancelled(j.id, null, null, null, null, null) from leasehold.live_jobs j
     where j.module_id = v_module.module_id and not j.running;
    update leasehold.modules m set active_version = null where m.module_id = v_module.module_id;
    -- The name stays on the finished jobs, so the row stays, under a name nobody can upload to.
    delete from leasehold.module_versions v where v.module_id = v_module.module_id;
    delete from leasehold.module_bytes b where b.tenant_id = v_module.tenant_id
       and not exists (select from leasehold.module_versions v where v.tenant_id = b.tenant_id and v.digest = b.digest);
    update leasehold.modules m set removed_name = m.name, name = null where m.module_id = v_module.module_id;
    return v_queued;
end $$;
-- A worker says goodbye after a drain: all its jobs are settled, its claims closed.
create or replace function leasehold.retire_worker(p_worker_id bigint, p_closed_claim_ids bigint[]) returns void
language sql volatile security definer set search_path = pg_catalog, pg_temp as $$
    delete from leasehold.claims c where c.claim_id = any(p_closed_claim_ids) and c.worker_id = p_worker_id;
    delete from leasehold.sleepers s where s.worker_id = p_worker_id;
    delete from leasehold.workers w where w.worker_id = p_worker_id;
$$;
-- A worker wants a NOTIFY (p_ttl_ms > 0: for so long, to be renewed) or no longer (0), for each of its queues. It claims once
-- more after asking, since a job may have been committed in between.
create or replace function leasehold.sleep(p_worker_id bigint, p_queues text[], p_ttl_ms int) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform set_config('synchronous_commit', 'off', true);
    if p_ttl_ms = 0 then
        delete from leasehold.sleepers s where s.worker_id = p_worker_id;
    else
        insert into leasehold.sleepers (queue, worker_id, until)
        select q, p_worker_id, clock_timestamp() + p_ttl_ms * interval '1 millisecond' from unnest(p_queues) q
            on conflict (queue, worker_id) do update set until = excluded.until;
    end if;
end $$;
-- running -> queued, for a batch of runs whose guest asked to be run again later. The attempt is not counted.
create or replace function leasehold.snooze(
    p_worker_id bigint, p_ids bigint[], p_lease_nos int[], p_delays_ms bigint[],
    p_fuel bigint[], p_wall_us bigint[], p_cpu_us bigint[], p_memory_peak_bytes bigint[], p_logs text[], p_log_dropped_bytes bigint[]
) returns setof bigint
language sql volatile security definer set search_path = pg_catalog, pg_temp set lock_timeout = '100ms' as $$
    select leasehold.give_back(p_worker_id, 'snooze', p_ids, p_lease_nos, p_delays_ms, array_fill(false, array[cardinality(p_ids)]),
                               array_fill(null::text, array[cardinality(p_ids)]), array_fill(null::text, array[cardinality(p_ids)]),
                               p_fuel, p_wall_us, p_cpu_us, p_memory_peak_bytes, p_logs, p_log_dropped_bytes)
$$;
-- Wakes the workers that said they sleep on a queue: one NOTIFY, and none on a busy system, since NOTIFY takes a
-- database-wide lock at commit. A hint only: polling is the contract.
create or replace function leasehold.wake(p_queue text) returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
    if exists (select from leasehold.sleepers s where s.queue = p_queue and s.until > clock_timestamp()) then
        perform pg_catalog.pg_notify('leasehold_wake', p_queue);
    end if;
end $$;
-- The runs of a job that left something to tell: all that did not end well, and those with output. log names its gap where something was dropped.
create or replace view leasehold.job_attempts as
select a.job_id, t.name as tenant, a.attempt, a.lease_no, a.outcome, a.version, a.worker_id, a.started_at, a.finished_at, a.failure_kind,
       a.message, a.backtrace, a.log, a.log_dropped_bytes,
       case when a.wall_us is not null then
           jsonb_build_object('fuel', a.fuel, 'wall_ms', round(a.wall_us / 1000.0, 3), 'cpu_ms', round(a.cpu_us / 1000.0, 3),
                              'memory_peak_bytes', a.memory_peak_bytes, 'result_bytes', coalesce(a.result_bytes, 0)) end as usage
  from leasehold.attempts a join leasehold.tenants t on t.tenant_id = a.tenant_id;
-- All jobs, live and finished. Look one up by id; list with a filter on tenant, state or finished_at.
-- result is JSON where the guest's bytes are JSON, a JSON string where they are text, else null; result_bytes are as returned.
-- error is that of the last failed attempt. version is the pinned one, the running one, or the one that ran last.
create or replace view leasehold.jobs as
select j.id, t.name as tenant, coalesce(m.name, m.removed_name) as module, j.version, j.queue,
       case when j.running then 'running' else 'queued' end::leasehold.job_state as state,
       j.priority, j.attempt, j.max_attempts, j.run_at, j.enqueued_at, j.started_at, null::timestamptz as finished_at,
       null::jsonb as result, a.message as error, null::jsonb as usage,
       a.failure_kind, null::bytea as result_bytes, j.payload, j.lease_no, j.crash_count, j.cancel_requested, c.worker_id, c.locked_until
  from leasehold.live_jobs j
  join leasehold.tenants t on t.tenant_id = j.tenant_id
  join leasehold.modules m on m.module_id = j.module_id
  left join leasehold.claims c on c.claim_id = j.claim_id
  left join lateral (select a.message, a.failure_kind from leasehold.attempts a
                      where a.job_id = j.id and a.failure_kind is not null order by a.lease_no desc limit 1) a on true
union all
select h.id, t.name, coalesce(m.name, m.removed_name), h.version, h.queue, h.state, h.priority, h.attempt, h.max_attempts, h.run_at,
       h.enqueued_at, h.started_at, h.finished_at, leasehold.as_json(h.result), h.error,
       case when h.wall_us is not null then
           jsonb_build_object('fuel', h.fuel, 'wall_ms', round(h.wall_us / 1000.0, 3), 'cpu_ms', round(h.cpu_us / 1000.0, 3),
                              'memory_peak_bytes', h.memory_peak_bytes, 'result_bytes', coalesce(octet_length(h.result), 0)) end,
       h.failure_kind, h.result, h.payload, h.lease_no, h.crash_count, false, h.worker_id, null
  from leasehold.history h
  join leasehold.tenants t on t.tenant_id = h.tenant_id
  join leasehold.modules m on m.module_id = h.module_id;
-- How many jobs of each tenant and queue are in each state. Finished states count the last 24 hours. oldest_due_age is how
-- long the job that waits longest has been due: growing means that workers are down or too few.
create or replace view leasehold.queue_stats as
select t.name as tenant, s.queue, s.state, s.count, s.oldest_due_age
  from (select j.tenant_id, j.queue, case when j.running then 'running' else 'queued' end::leasehold.job_state as state, count(*) as count,
               now() - min(j.run_at) filter (where not j.running and j.run_at <= now()) as oldest_due_age
          from leasehold.live_jobs j group by 1, 2, 3
        union all
        select h.tenant_id, h.queue, h.state, count(*), null
          from leasehold.history h where h.finished_at > now() - interval '24 hours' group by 1, 2, 3) s
  join leasehold.tenants t on t.tenant_id = s.tenant_id;
-- Roles and grants, applied anew by each migrate. leasehold_worker runs jobs; leasehold_producer puts jobs in and looks at
-- them. Both are group roles: grant them to login roles. Where the migrating role may not create roles, this is left to the
-- administrator, and nothing else depends on it.
revoke all on schema leasehold from public;
revoke execute on all functions in schema leasehold from public;
do $$
declare
    v_role text;
begin
    foreach v_role in array array['leasehold_worker', 'leasehold_producer'] loop
        -- Looked up first: without the right to create roles, an existing one is refused like a new one.
        continue when exists (select from pg_roles where rolname = v_role);
        begin
            execute format('create role %I', v_role);
        exception
            when duplicate_object or unique_violation then null;  -- somebody else did, in this moment
            when insufficient_privilege then
                raise warning 'may not create role %: create it and run leasehold migrate again', v_role;
                return;
        end;
    end loop;

    grant usage on schema leasehold to leasehold_worker, leasehold_producer;
    grant select on leasehold.jobs, leasehold.job_attempts, leasehold.queue_stats to leasehold_worker, leasehold_producer;
    grant execute on all functions in schema leasehold to leasehold_worker;
    revoke execute on function leasehold.move_to_cancelled, leasehold.give_back, leasehold.wake, leasehold.check_enqueue from leasehold_worker;
    grant select on leasehold.tenants, leasehold.modules, leasehold.module_versions, leasehold.module_bytes, leasehold.workers, leasehold.schema_version
        to leasehold_worker;
    grant execute on function
        leasehold.enqueue(text, jsonb, text, text, int, timestamptz, int, interval, interval, int),
        leasehold.enqueue(text, text, text, text, int, timestamptz, int, interval, interval, int),
        leasehold.enqueue(text, bytea, text, text, int, timestamptz, int, interval, interval, int),
        leasehold.enqueue_bytes, leasehold.enqueue_many, leasehold.cancel, leasehold.redrive, leasehold.as_json
        to leasehold_producer;
end $$;
