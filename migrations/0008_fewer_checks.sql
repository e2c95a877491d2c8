-- Rules of live_jobs that its functions keep, and which are checked by the tests alone from now on (tests/support/rules.sql adds them to each
-- database of the tests). PostgreSQL parses the text of every CHECK anew for each statement: 13 of them took 24 of the 100 microseconds of an
-- enqueue, and as much of each claim. What fences runs stays here: leased iff running, attempts within their bounds.
alter table leasehold.live_jobs
    drop constraint live_jobs_attempts_left_when_queued,
    drop constraint live_jobs_cancel_requested_only_while_running,
    drop constraint live_jobs_versioned_when_running_or_pinned,
    drop constraint live_jobs_payload_fits_into_a_claim,
    drop constraint live_jobs_priority_in_range,
    drop constraint live_jobs_queue_is_1_to_63_plain_characters,
    drop constraint live_jobs_due_at_iff_waiting,
    drop constraint live_jobs_waiting_is_not_running,
    drop constraint live_jobs_waiting_is_out_of_the_way,
    drop constraint live_jobs_places_only_while_running;
