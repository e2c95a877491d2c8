-- An argument's interval in whole milliseconds, or a refusal that names it. At most a day: a run of more than that belongs
-- into several jobs.
create or replace function leasehold.milliseconds(p_name text, p_interval interval, p_least int) returns int
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
    if extract(epoch from p_interval) * 1000 not between p_least and 86400000 then
        raise exception '% of % is outside % ms to 24 hours', p_name, p_interval, p_least using errcode = 'LH003';
    end if;
    return extract(epoch from p_interval) * 1000;
end $$;
