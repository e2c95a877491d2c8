-- Refuses a key that is not 1 to 255 bytes (LH003); null is none.
create or replace function leasehold.check_key(p_name text, p_key text) returns void
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
    if octet_length(p_key) not between 1 and 255 then
        raise exception '% of % bytes is outside 1 to 255 bytes', p_name, octet_length(p_key) using errcode = 'LH003';
    end if;
end $$;
