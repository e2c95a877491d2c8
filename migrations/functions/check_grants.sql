-- Refuses grants that push_module must not take; part of it. LH003: what no worker could read. LH034: a role of the tenant itself asks for HTTP requests,
-- which go out from the operator's network and so are the operator's to grant; config values, checkpoints and the tenant's own secrets are not.
create or replace function leasehold.check_grants(p_grants jsonb) returns void
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    v_bad text;
begin
    if jsonb_typeof(p_grants) is distinct from 'object' or octet_length(p_grants::text) > 200000 then
        raise exception 'grants are a JSON object of at most 200000 bytes' using errcode = 'LH003';
    end if;
    select g.key into v_bad
      from jsonb_each(p_grants) g
     where case g.key
               when 'checkpoint_bytes' then case when jsonb_typeof(g.value) = 'number' then g.value::numeric not between 0 and 4194304
                                                                                                 or g.value::numeric <> trunc(g.value::numeric)
                                                 else true end
               when 'config' then jsonb_typeof(g.value) <> 'object' or jsonb_path_exists(g.value, '$.* ? (@.type() != "string")')
               when 'secrets' then jsonb_typeof(g.value) <> 'array' or jsonb_array_length(g.value) > 32
                                or jsonb_path_exists(g.value, '$[*] ? (@.type() != "string")')
               when 'http' then jsonb_typeof(g.value) <> 'array' or jsonb_array_length(g.value) > 100
                             or jsonb_path_exists(g.value,
                                    '$[*] ? (@.type() != "string" || !(@ like_regex "^https?://([*][.])?[a-z0-9_.:\\[\\]-]+:[0-9]{1,5}$"))')
               when 'http_private' then jsonb_typeof(g.value) <> 'boolean'
               else true
           end
     limit 1;
    if found then
        raise exception 'grant % is none, or not one that a worker could read', quote_literal(left(v_bad, 80))
            using errcode = 'LH003', hint = 'grants are checkpoint_bytes, config, secrets, http and http_private';
    end if;
    if leasehold.my_tenants('tenant') is not null and (p_grants -> 'http' <> '[]' or p_grants -> 'http_private' = 'true') then
        raise exception 'HTTP requests are the operator''s to grant' using errcode = 'LH034', hint = 'have the operator upload the module with --allow-http';
    end if;
end $$;
