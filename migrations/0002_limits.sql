-- What a job may be told besides when to run: keys, rates, an end, others to wait for. Nothing here rewrites a row or scans a
-- table, so that it takes no long lock however many jobs there are: new columns are null or constant, new indexes are on new or
-- small tables. Tables are altered in the order in which enqueue, claim and the settling functions take them, or those and this
-- would wait for each other.

-- How a module's jobs are tried again where a job does not say so itself: base_ms, factor, cap_ms, jitter, max_attempts.
alter table leasehold.module_versions
    add column retry       jsonb not null default '{}',
    add column follow_ups  int not null default 0;   -- jobs that a run may ask for

-- options is null for a plain job, and nearly all that is special about a job is behind that one test. Its keys:
--   concurrency_key, concurrency_limit   at most so many jobs of the key run at once
--   rate_key                             the rate limit of that name
--   unique_key, unique_for_ms            one job of the key
--   group_id                             the group it counts for
--   backoff_factor, backoff_cap_ms, backoff_jitter, notify, on_dead
alter table leasehold.live_jobs
    add column expires_at  timestamptz,   -- not begun after it, and no run goes on past it
    add column options     jsonb,
    -- A job that waits is out of the claim's index range: run_at is infinity, and due_at says when it is due.
    add column due_at      timestamptz,
    add column waits_at    bigint,        -- the gate at which it waits; 0: for other jobs
    add column held_gates  bigint[];      -- the gates in which it takes a place while it runs
alter table leasehold.live_jobs
    add constraint live_jobs_due_at_iff_waiting check ((due_at is null) = (waits_at is null)) not valid,
    add constraint live_jobs_waiting_is_not_running check (not running or waits_at is null) not valid,
    add constraint live_jobs_waiting_is_out_of_the_way check (waits_at is null or run_at = 'infinity') not valid,
    add constraint live_jobs_places_only_while_running check (running or held_gates is null) not valid;
alter table leasehold.history
    add column expires_at  timestamptz,
    add column options     jsonb;

-- Where jobs may have to wait. Whoever holds a gate's row lock, and nobody else, changes its numbers and its lines.
create table leasehold.gates (
    tenant_id    int not null,
    gate_id      bigint generated always as identity primary key,
    kind         text collate "C" not null,
    module_id    int not null default 0,           -- 0: of all the tenant's modules
    name         text collate "C" not null default '',  -- the key, where the gate is one's
    wanted       int,                              -- cap: how many are to run at most
    max          int,                              -- key, cap: how many may; more than wanted only where more did before
    running      int not null default 0,           -- key, cap: how many do
    per_second   float8,                           -- rate: tokens that come back
    burst        float8,                           -- rate: tokens that there are at most
    tokens       float8,                           -- rate: tokens left at refilled_at
    refilled_at  timestamptz,
    paused_at    timestamptz,                      -- pause: null once resumed
    reason       text,
    used_at      timestamptz not null default now(),
    constraint gates_one_of_a_kind unique (tenant_id, kind, module_id, name),
    constraint gates_kind_is_known check (kind in ('off', 'pause', 'cap', 'key', 'rate')),
    -- The promise of a concurrency key, kept by the database whatever a claim does.
    constraint gates_never_over_max check (running between 0 and coalesce(max, 0)),
    constraint gates_max_where_counted check ((max is not null) = (kind in ('cap', 'key'))),
    constraint gates_rate_where_rated check ((per_second is not null and burst is not null and tokens is not null and refilled_at is not null) = (kind = 'rate')),
    constraint gates_rate_is_positive check (per_second > 0 and burst >= 1),
    constraint gates_only_keys_have_names check (name = '' or kind in ('key', 'rate'))
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_cost_delay = 0);

-- Which queues have jobs at which gate, and from when on it may let one through. A claim starts from here.
create table leasehold.gate_lines (
    queue     text collate "C" not null,
    gate_id   bigint not null references leasehold.gates on delete cascade,
    opens_at  timestamptz not null,
    primary key (gate_id, queue)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_cost_delay = 0);
create index gates_of_scopes on leasehold.gates (tenant_id, module_id) where kind <> 'key' and name = '';
create index gate_lines_by_opening on leasehold.gate_lines (queue, opens_at);

-- The jobs in those lines, in the order in which they go through.
create table leasehold.waiting_jobs (
    gate_id   bigint not null,
    queue     text collate "C" not null,
    priority  smallint not null,
    due_at    timestamptz not null,
    job_id    bigint not null,
    primary key (gate_id, queue, priority, due_at, job_id)
) with (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

create index modules_switched_off on leasehold.modules (module_id) where active_version is null and name is not null;

create table leasehold.paused_queues (
    queue      text collate "C" primary key,
    paused_at  timestamptz not null default now(),
    paused_by  text not null,
    reason     text
);

-- Whose a unique key is. The row may outlive its job; it counts while the job is live, and until the end of its period.
create table leasehold.unique_keys (
    tenant_id  int not null,
    key        text collate "C" not null,
    job_id     bigint not null,
    until      timestamptz,
    primary key (tenant_id, key)
);

-- A job that waits for others, one row for each that has not ended.
create table leasehold.dependencies (
    after_id  bigint not null,
    job_id    bigint not null,
    primary key (after_id, job_id)
);
create index dependencies_by_job on leasehold.dependencies (job_id);

create sequence leasehold.groups_group_id_seq;
create table leasehold.group_members (
    group_id  bigint not null,
    job_id    bigint not null,
    primary key (group_id, job_id)
);

-- Jobs with an end, by their end: found when they wait past it.
create table leasehold.expiries (
    expires_at  timestamptz not null,
    job_id      bigint not null,
    primary key (expires_at, job_id)
);
