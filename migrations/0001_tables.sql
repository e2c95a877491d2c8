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
