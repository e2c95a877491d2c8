-- - -> queued, for a row inserted into the view leasehold.new_jobs: enqueue by INSERT or COPY. Same refusals as enqueue.
create or replace function leasehold.insert_new_job() returns trigger
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
    new.id := leasehold.enqueue_bytes(
        new.module, coalesce(new.payload_bytes, convert_to(coalesce(new.payload, '{}')::text, 'UTF8')), coalesce(new.tenant, 'default'),
        coalesce(new.queue, 'default'), coalesce(new.priority, 0), new.run_at, new.max_attempts, new.timeout, new.backoff, new.version,
        new.concurrency_key, coalesce(new.concurrency_limit, 1), new.rate_key, new.unique_key, new.unique_for, coalesce(new.on_conflict, 'keep'),
        new.expires_at, null, null, 'cancel', new.group_id, null, null, null, coalesce(new.notify, false));
    return new;
end $$;
