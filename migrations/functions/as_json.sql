-- A guest's bytes as a JSON value: themselves when they are JSON, else a JSON string when they are text, else null. A guest
-- may return anything, and a view must not fail on it. Numbers are printed without exponents, so eight bytes like 1e131071
-- become 131072, and 55 MB of 1e99 more than the server can send; JSON that would grow by over ten million digits stays text.
create or replace function leasehold.as_json(p_bytes bytea) returns jsonb
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
declare
    v_text text;
begin
    v_text := convert_from(p_bytes, 'UTF8');
    if (select coalesce(sum(case when length(m[1]) > 6 then 1e8 else m[1]::int end), 0)
          from regexp_matches(v_text, '[eE][+-]?([0-9]+)', 'g') m) > 1e7 then
        return to_jsonb(v_text);
    end if;
    return v_text::jsonb;
exception when others then
    return to_jsonb(v_text);  -- null when it is not even text
end $$;
