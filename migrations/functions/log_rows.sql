-- The lines of a log as a worker writes it: each after a head with its number, the microseconds after the run's start and where it comes
-- from, between two control characters that no guest's text can hold (runner/src/outcome/log.rs). A "+" after that: it goes on with the line
-- before. A log of a version before this one is a single row.
create or replace function leasehold.log_rows(p_log text)
returns table (line bigint, after interval, stream text, level text, goes_on boolean, text text)
language sql immutable parallel safe set search_path = pg_catalog, pg_temp as $$
    select split_part(r.head, ' ', 1)::bigint, split_part(r.head, ' ', 2)::bigint * interval '1 microsecond',
           case when r.source in ('stdout', 'stderr', 'dropped') then r.source else 'log' end,
           case when r.source not in ('stdout', 'stderr', 'dropped') then r.source end,
           r.head like '%+', r.body
      from (select split_part(s.part, chr(31), 1) as head, rtrim(split_part(split_part(s.part, chr(31), 1), ' ', 3), '+') as source,
                   regexp_replace(substr(s.part, strpos(s.part, chr(31)) + 1), '\n$', '') as body
              from string_to_table(substr(p_log, 2), chr(30)) with ordinality s(part, n) order by s.n) r
     where p_log like chr(30) || '%'
    union all
    select 0, interval '0', null, null, false, p_log where p_log not like chr(30) || '%'
$$;

-- The same as one text, as `leasehold job show` prints it.
create or replace function leasehold.log_text(p_log text) returns text
language sql immutable parallel safe set search_path = pg_catalog, pg_temp as $$
    select case when p_log like chr(30) || '%' then
               regexp_replace(regexp_replace(p_log, '\x1e\d+ \d+ (trace|debug|info|warn|error)\x1f', '[\1] ', 'g'), '\x1e[^\x1f]*\x1f', '', 'g')
           else p_log end
$$;
