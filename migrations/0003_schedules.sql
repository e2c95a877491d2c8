-- Schedules: jobs that are enqueued by a cron expression. What happens to a row is in functions/; the view "schedules" shows them.

create type leasehold.missed_policy as enum ('skip', 'once', 'all');

-- One row a schedule. The next fire is kept here, so no restart or change of workers forgets one.
create table leasehold.timetable (
    tenant_id         int not null references leasehold.tenants,
    schedule_id       bigint generated always as identity primary key,
    name              text collate "C" not null,
    cron              text not null,
    time_zone         text not null,
    -- The job. The module by name: a schedule outlives a removed module, and finds one that is uploaded anew.
    module            text collate "C" not null,
    queue             text collate "C" not null,
    priority          int not null,
    max_attempts      int not null,
    timeout           interval,
    backoff           interval,
    version           int,
    time_key          text,                   -- the payload's key that gets the nominal time
    missed            leasehold.missed_policy not null,
    missed_limit      int not null,           -- for 'all'
    spread_ms         int not null,           -- the window that fires of many schedules are spread over
    spread_offset_ms  int not null,           -- this schedule's place in it
    paused            boolean not null,
    next_fire         timestamptz,            -- the nominal time, without the offset; null: a worker has yet to compute it
    look_at           timestamptz not null,   -- when a worker has something to do here
    refusals          int not null default 0, -- in a row
    error             text,                   -- why the last look failed; null once one went well
    error_at          timestamptz,
    last_fire         timestamptz,            -- the nominal time
    last_fired_at     timestamptz,            -- the clock
    last_job_id       bigint,
    created_at        timestamptz not null default now(),
    updated_at        timestamptz not null default now(),
    payload           bytea not null,
    constraint timetable_name_is_unique_in_its_tenant unique (tenant_id, name),
    constraint timetable_name_is_1_to_63_plain_characters check (name ~ '^[a-z0-9][a-z0-9_.-]{0,62}$'),
    constraint timetable_cron_is_short check (octet_length(cron) <= 255),
    constraint timetable_payload_is_at_most_1_mib check (octet_length(payload) <= 1048576),
    constraint timetable_missed_limit_in_range check (missed_limit between 1 and 1000),
    constraint timetable_spread_offset_within_spread check (spread_offset_ms = 0 or spread_offset_ms between 0 and spread_ms - 1),
    constraint timetable_next_fire_is_a_whole_second check (mod(extract(epoch from next_fire), 1) = 0),
    constraint timetable_error_has_its_time check ((error is null) = (error_at is null))
) with (
    fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_cost_delay = 0
);
-- What is due, and when the next is.
create index timetable_by_look on leasehold.timetable (look_at, schedule_id) where not paused;
