-- What no single event brings about; called by each worker's maintenance, every few seconds. Ends queued jobs that have expired, and
-- sees to jobs that wait for others which have ended unseen, and adds up what runs used. Idempotent, bounded, and one caller at a time; the others answer at
-- once. Answers how many jobs expired: call again while it is many.
create or replace function leasehold.sweep(p_limit int) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set lock_timeout = '1s'
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
    v_count bigint := 0;
    v_from bigint;
    v_ids bigint[];
    v_end record;
begin
    -- A row that nobody but Leasehold can lock, unlike an advisory lock.
    perform from leasehold.schema_version s where s.version = 0 for no key update skip locked;
    if not found then
        return 0;
    end if;

    -- Jobs past their end. One that runs is looked at again: its run ends with it.
    with due as (
        select x.expires_at, x.job_id from leasehold.expiries x where x.expires_at <= clock_timestamp() order by x.expires_at limit p_limit for update skip locked
    ), gone as (
        delete from leasehold.expiries x using due d where (x.expires_at, x.job_id) = (d.expires_at, d.job_id)
           and not exists (select from leasehold.live_jobs j where j.id = d.job_id and j.running)
        returning x.job_id
    )
    select array_agg(g.job_id) into v_ids from gone g;
    if v_ids is not null then
        v_count := v_count + leasehold.expire(v_ids);
        -- Somebody held them, or they came back meanwhile.
        insert into leasehold.expiries select j.expires_at, j.id from leasehold.live_jobs j where j.id = any(v_ids) and j.expires_at is not null on conflict do nothing;
    end if;

    -- Jobs that wait for others that have ended: enqueued while those ended, or passed over by after_end.
    -- From a place by chance, so that each has its turn however many there are.
    select min(d.after_id) + floor(random() * (max(d.after_id) - min(d.after_id) + 1) * (random() < 0.5)::int)::bigint into v_from from leasehold.dependencies d;
    for v_end in
        select d.after_id, max(h.state) as state
          from (select distinct d.after_id from leasehold.dependencies d where d.after_id >= v_from order by d.after_id limit p_limit) d
          left join leasehold.history h on h.id = d.after_id
         where not exists (select from leasehold.live_jobs j where j.id = d.after_id)
         group by d.after_id
    loop
        if v_end.state is null then
            -- Its day was dropped from history: whatever it was, it has ended.
            v_end.state := 'done';
        end if;
        perform leasehold.after_end(array[v_end.after_id], v_end.state);
    end loop;
    -- Usage is added up now and then: reading the log costs most while somebody's snapshot keeps its dead rows.
    if random() < 0.2 then
        with taken as (
            delete from leasehold.usage_log l where l.ctid = any(array(select u.ctid from leasehold.usage_log u limit 100000)) returning l.*
        )
        insert into leasehold.usage_days as d
        select t.tenant_id, t.module_id, t.day, sum(t.runs), sum(t.failed), sum(t.crashed), sum(t.cpu_us), sum(t.fuel), sum(t.memory_byte_seconds),
               sum(t.bytes_in), sum(t.bytes_out)
          from taken t group by 1, 2, 3
        on conflict on constraint usage_days_pkey do update
           set runs = d.runs + excluded.runs, failed = d.failed + excluded.failed, crashed = d.crashed + excluded.crashed,
               cpu_us = d.cpu_us + excluded.cpu_us, fuel = d.fuel + excluded.fuel,
               memory_byte_seconds = d.memory_byte_seconds + excluded.memory_byte_seconds,
               bytes_in = d.bytes_in + excluded.bytes_in, bytes_out = d.bytes_out + excluded.bytes_out;
    end if;
    return v_count;
end $$;
