-- A guest's bytes as a JSON value: themselves when they are JSON, else a JSON string when they are text, else null. A guest
-- may return anything, and a view must not fail on it.
create or replace function leasehold.as_json(p_bytes bytea) returns jsonb
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
    return convert_from(p_bytes, 'UTF8')::jsonb;
exception when others then
    begin
        return to_jsonb(convert_from(p_bytes, 'UTF8'));
    exception when others then
        return null;
    end;
end $$;
