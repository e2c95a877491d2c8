-- Changes nothing. How many live jobs of each queue wait for what, under the first code that explain gives each; jobs that no claim has met yet
-- count as ready, whatever gate is before them. oldest is for how long the one that is due longest has been. Reads all live jobs: for a look
-- now and then.
create or replace function leasehold.count_waiting() returns table (queue text, code text, jobs bigint, oldest interval)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select w.queue, w.code, count(*), max(w.waited) filter (where w.waited >= interval '0') from (
        select j.queue, clock.now - coalesce(j.due_at, j.run_at) as waited,
               case when j.running then 'running'
                    when coalesce(j.due_at, j.run_at) > clock.now then 'not_due'
                    when j.waits_at = 0 then 'waits_for_job'
                    when exists (select from leasehold.paused_queues p where p.queue = j.queue) then 'queue_paused'
                    when m.active_version is null then 'module_off'
                    else coalesce(leasehold.gate_code(g.kind, g.module_id, g.paused_at, g.running,
                                                      coalesce(g.wanted, (j.options ->> 'concurrency_limit')::int, 1),
                                                      leasehold.next_token(g.tokens, g.refilled_at, g.per_second, g.burst, clock.now), clock.now),
                                  case when not exists (select from leasehold.workers k
                                                         where j.queue = any(k.queues) and k.seen_at > clock.now - interval '1 minute') then 'no_worker' end,
                                  'ready') end as code
          from (select clock_timestamp() as now offset 0) clock
         cross join leasehold.live_jobs j
          join leasehold.modules m on m.module_id = j.module_id
          left join leasehold.gates g on g.gate_id = j.waits_at
    ) w group by 1, 2 order by 1, 2;
$$;
