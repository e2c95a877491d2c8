-- What migrations/0008_fewer_checks.sql took out of production: each test's database refuses a row that breaks one of these.
alter table leasehold.live_jobs
    add constraint live_jobs_attempts_left_when_queued check (running or attempt < max_attempts),
    add constraint live_jobs_cancel_requested_only_while_running check (running or not cancel_requested),
    add constraint live_jobs_versioned_when_running_or_pinned check ((version is not null) = (running or version_pinned)),
    -- Half of what one claim brings: a worker holds the payloads of all jobs that it has claimed.
    add constraint live_jobs_payload_fits_into_a_claim check (octet_length(payload) <= 16777216),
    add constraint live_jobs_priority_in_range check (priority between -100 and 100),
    add constraint live_jobs_queue_is_1_to_63_plain_characters check (queue ~ '^[a-z0-9][a-z0-9_.-]{0,62}$'),
    add constraint live_jobs_due_at_iff_waiting check ((due_at is null) = (waits_at is null)),
    add constraint live_jobs_waiting_is_not_running check (not running or waits_at is null),
    add constraint live_jobs_waiting_is_out_of_the_way check (waits_at is null or run_at = 'infinity'),
    add constraint live_jobs_places_only_while_running check (running or held_gates is null);
