-- Makes the partitions of history and attempts for today and the next p_ahead days, and drops those whose last day ended more
-- than p_retention_days ago. Jobs that are done may go sooner, after p_done_days: the other rows of such a day move to the default
-- partition, which are few, and the day is dropped. Idempotent; one caller at a time, the others answer at once with nothing. Rows of a day without
-- a partition land in the default one, which keeps settling safe when nobody calls this for long. Answers what it did.
drop function if exists leasehold.maintain_partitions(int, int);
create or replace function leasehold.maintain_partitions(p_ahead int, p_retention_days int, p_done_days int default null) returns setof text
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set lock_timeout = '2s' as $$
declare
    v_table text;
    v_day date;
    v_old record;
    v_today date := (now() at time zone 'UTC')::date;
begin
    if not pg_try_advisory_xact_lock(hashtext('leasehold.maintain_partitions')) then
        return;
    end if;
    foreach v_table in array array['history', 'attempts'] loop
        for v_day in select (v_today + d) from generate_series(0, p_ahead) d loop
            if to_regclass(format('leasehold.%I', v_table || '_' || to_char(v_day, 'YYYYMMDD'))) is null then
                begin
                    execute format('create table leasehold.%I (like leasehold.%I including defaults including constraints)', v_table || '_' || to_char(v_day, 'YYYYMMDD'), v_table);
                    execute format('alter table leasehold.%I attach partition leasehold.%I for values from (%L) to (%L)', v_table, v_table || '_' || to_char(v_day, 'YYYYMMDD'),
                                   v_day::timestamp at time zone 'UTC', (v_day + 1)::timestamp at time zone 'UTC');
                    execute format('alter table leasehold.%I enable row level security', v_table || '_' || to_char(v_day, 'YYYYMMDD'));
                    return next format('created %s_%s', v_table, to_char(v_day, 'YYYYMMDD'));
                exception when check_violation then
                    -- Rows of that day already lie in the default partition; it keeps that day.
                    execute format('drop table if exists leasehold.%I', v_table || '_' || to_char(v_day, 'YYYYMMDD'));
                end;
            end if;
        end loop;
        for v_old in
            select c.oid::regclass as name, c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid
             where i.inhparent = format('leasehold.%I', v_table)::regclass and c.relname ~ '_\d{8}$'
               and to_date(right(c.relname, 8), 'YYYYMMDD') < v_today - p_retention_days
        loop
            execute format('drop table %s', v_old.name);
            return next format('dropped %s', v_old.relname);
        end loop;
        if v_table = 'history' and p_done_days < p_retention_days then
            for v_old in
                select c.oid::regclass as name, c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid
                 where i.inhparent = 'leasehold.history'::regclass and c.relname ~ '_\d{8}$'
                   and to_date(right(c.relname, 8), 'YYYYMMDD') < v_today - p_done_days
            loop
                execute format('alter table leasehold.history detach partition %s', v_old.name);
                execute format('insert into leasehold.history select * from %s where state <> %L', v_old.name, 'done');
                execute format('drop table %s', v_old.name);
                return next format('dropped the done jobs of %s', v_old.relname);
            end loop;
            delete from leasehold.history_default h where h.state = 'done' and h.finished_at < now() - make_interval(days => p_done_days);
        end if;
        execute format('delete from leasehold.%I where finished_at < now() - %L::interval', v_table || '_default', make_interval(days => p_retention_days));
    end loop;
end $$;
