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
    v_buried boolean;
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
                v_buried := not v_job.cancel_requested
                            and (v_job.crash_count + 1 >= p_crash_limit or v_job.attempt >= v_job.max_attempts or coalesce(v_job.expires_at <= clock_timestamp(), false));
                if not v_buried then  -- bury counts its own
                    insert into leasehold.usage_log (tenant_id, module_id, day, runs, failed, crashed, cpu_us, fuel, memory_byte_seconds, bytes_in, bytes_out)
                    values (v_job.tenant_id, v_job.module_id, (clock_timestamp() at time zone 'UTC')::date, 1, 1, 1, 0, 0, 0, octet_length(v_job.payload), 0);
                end if;
                if v_job.cancel_requested then
                    insert into leasehold.attempts (tenant_id, job_id, lease_no, attempt, outcome, version, worker_id, started_at, finished_at, failure_kind, message)
                    values (v_job.tenant_id, v_job.id, v_job.lease_no, v_job.attempt, 'cancelled', v_job.version, v_claim.worker_id, v_job.started_at, clock_timestamp(), 'crash', v_message);
                    perform leasehold.move_to_cancelled(v_job.id, v_claim.worker_id, null, null, null, null);
                    perform leasehold.after_end(array[v_job.id], 'cancelled');
                    state := 'cancelled';
                elsif v_buried then
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
                       set running = false, claim_id = null, started_at = null, held_gates = null, crash_count = j.crash_count + 1,
                           version = case when j.version_pinned then j.version end, run_at = clock_timestamp()
                     where j.id = v_job.id;
                    perform leasehold.leave_gates(v_job.held_gates);
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
