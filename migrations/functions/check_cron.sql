-- Checks of a cron expression what can be told without a calendar: length, characters, number of fields, names, and days of
-- the month that no named month has. Answers it without the space around it. A worker says the rest (the view's error),
-- since cron arithmetic is done there. LH003: refused.
create or replace function leasehold.check_cron(p_cron text) returns text
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
declare
    v_cron text;
    v_fields text[];
    v_months text[] := array['jan', 'feb', 'mar', 'apr', 'may', 'jun', 'jul', 'aug', 'sep', 'oct', 'nov', 'dec'];
    v_longest int;
    v_first_day int;
begin
    if p_cron is null then
        raise exception 'cron is null' using errcode = 'LH003';
    elsif octet_length(p_cron) > 255 then
        raise exception 'cron of % bytes exceeds the limit of 255 bytes', octet_length(p_cron) using errcode = 'LH003';
    end if;
    v_cron := btrim(p_cron, E' \t');
    if starts_with(v_cron, '@') then
        if lower(v_cron) not in ('@hourly', '@daily', '@midnight', '@weekly', '@monthly', '@yearly', '@annually') then
            raise exception 'cron % is no known name', quote_literal(left(v_cron, 80))
                using errcode = 'LH003', hint = 'names are @hourly, @daily, @midnight, @weekly, @monthly, @yearly and @annually';
        end if;
        return v_cron;
    elsif v_cron !~ E'^[0-9A-Za-z*/,# \t-]*$' then
        raise exception 'cron % has a character other than letters, digits, "*", ",", "-", "/" and "#"', quote_literal(left(v_cron, 80))
            using errcode = 'LH003';
    end if;
    v_fields := case when v_cron = '' then '{}' else regexp_split_to_array(v_cron, E'[ \t]+') end;
    if cardinality(v_fields) not in (5, 6) then
        raise exception 'cron % has % fields, not 5 or 6', quote_literal(left(v_cron, 80)), cardinality(v_fields)
            using errcode = 'LH003', hint = 'minute, hour, day of the month, month, day of the week; with 6, seconds come first';
    end if;
    v_fields := v_fields[cardinality(v_fields) - 2:];
    if v_fields[1] ~ '^\d{1,2}(,\d{1,2})*$' and v_fields[3] = '*' and lower(v_fields[2]) ~ '^(\d{1,2}|[a-z]{3})(,(\d{1,2}|[a-z]{3}))*$' then
        select max(case when m.month in (4, 6, 9, 11) then 30 when m.month = 2 then 29 else 31 end) into v_longest
          from (select coalesce(array_position(v_months, lower(f)), case when f ~ '^\d+$' then f::int end) as month
                  from regexp_split_to_table(v_fields[2], ',') f) m;
        select min(f::int) into v_first_day from regexp_split_to_table(v_fields[1], ',') f;
        if v_first_day > v_longest then
            raise exception 'cron % never fires: it names day %, and its months have % days at most', quote_literal(left(v_cron, 80)), v_first_day, v_longest
                using errcode = 'LH003';
        end if;
    end if;
    return v_cron;
end $$;
