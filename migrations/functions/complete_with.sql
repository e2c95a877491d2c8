-- running -> done, and - -> queued for the follow-up jobs that the run asked for, in one transaction: for one run. Answers its id,
-- or nothing when it had lost its lease; then nothing was written. p_jobs: an array of objects with module, queue, priority,
-- delay_ms, unique_key and concurrency_key; their payloads in the same order. LH008: one of the jobs cannot be put in; the message
-- says which and why.
create or replace function leasehold.complete_with(
    p_worker_id bigint, p_ids bigint[], p_lease_nos int[], p_results bytea[], p_jobs jsonb, p_payloads bytea[],
    p_fuel bigint[], p_wall_us bigint[], p_cpu_us bigint[], p_memory_peak_bytes bigint[], p_logs text[], p_log_dropped_bytes bigint[]
) returns setof bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_parent record;
    v_job record;
    v_id bigint;
begin
    perform set_config('leasehold.waits', 'no', true);  -- for a quota: nobody's jobs are settled later because of an open transaction
    -- Read before it moves to history; complete judges whether the lease holds.
    select t.name as tenant, j.queue into v_parent
      from leasehold.live_jobs j join leasehold.tenants t on t.tenant_id = j.tenant_id where j.id = p_ids[1];
    select c into v_id
      from leasehold.complete(p_worker_id, p_ids, p_lease_nos, p_results, p_fuel, p_wall_us, p_cpu_us, p_memory_peak_bytes, p_logs, p_log_dropped_bytes) c;
    if not found then
        return;
    end if;
    for v_job in
        select j.value as asked, p.payload, j.n
          from jsonb_array_elements(p_jobs) with ordinality j(value, n) join unnest(p_payloads) with ordinality p(payload, n) on p.n = j.n order by j.n
    loop
        begin
            perform leasehold.enqueue(
                module => v_job.asked ->> 'module', payload => v_job.payload, tenant => v_parent.tenant,
                queue => coalesce(v_job.asked ->> 'queue', v_parent.queue), priority => (v_job.asked ->> 'priority')::int,
                run_at => case when v_job.asked ->> 'delay_ms' is not null then
                              clock_timestamp() + least((v_job.asked ->> 'delay_ms')::numeric, 31622400000)::float8 * interval '1 millisecond' end,
                unique_key => v_job.asked ->> 'unique_key', concurrency_key => v_job.asked ->> 'concurrency_key');
        exception when others then
            -- What is refused for another reason than what the guest asked for is none of its doing.
            if sqlstate !~ '^LH' then
                raise;
            end if;
            raise exception 'follow-up job % was refused: %', v_job.n, sqlerrm using errcode = 'LH008';
        end;
    end loop;
    return next v_id;
end $$;
