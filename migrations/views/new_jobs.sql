-- Empty to look at. A row inserted here is a job enqueued: for COPY, and for clients that write many rows of differing modules,
-- queues or keys: copy leasehold.new_jobs (module, payload, queue) from stdin. A null is the default that enqueue has.
create or replace view leasehold.new_jobs as
select null::bigint as id, null::text as module, null::jsonb as payload, null::bytea as payload_bytes, null::text as tenant, null::text as queue,
       null::int as priority, null::timestamptz as run_at, null::int as max_attempts, null::interval as timeout, null::interval as backoff,
       null::int as version, null::text as concurrency_key, null::int as concurrency_limit, null::text as rate_key, null::text as unique_key,
       null::interval as unique_for, null::text as on_conflict, null::timestamptz as expires_at, null::bigint as group_id, null::boolean as notify
 where false;
create or replace trigger enqueue instead of insert on leasehold.new_jobs for each row execute function leasehold.insert_new_job();
