-- Refuses an upload that push_module must not take; part of it, under the lock of the tenant's row. LH003: settings that no worker can read. LH032,
-- LH033: the tenant's quota of module_bytes or module_versions has no room. LH034: a role of the tenant itself asks for more than the
-- tenant's ceiling. What only a sandbox can tell of the bytes is told when a worker compiles them, in a process of its own under limits, before
-- the first run: such a job ends dead with the reason, and nobody else notices.
create or replace function leasehold.check_upload(
    p_tenant_id int, p_digest bytea, p_size bigint, p_kind text, p_fuel bigint, p_memory_bytes bigint, p_timeout_ms int, p_result_bytes bigint,
    p_log_bytes int, p_on_failure jsonb, p_imports text[], p_retry jsonb, p_follow_ups int
) returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
    c_kinds constant text[] := '{guest_retry,exit,guest_dead,trap,fuel,memory,stack,output,timeout,link,abi}';
    v_tenant record;
    v_name text;
    v_bad text;
    v_asked bigint;
    v_used bigint;
begin
    if p_kind is null or p_kind not in ('component', 'command') then
        raise exception 'kind % is neither component nor command', coalesce(quote_literal(left(p_kind, 80)), 'null') using errcode = 'LH003';
    elsif jsonb_typeof(p_on_failure) is distinct from 'object' or jsonb_typeof(p_retry) is distinct from 'object' then
        raise exception 'on_failure and retry are JSON objects' using errcode = 'LH003', hint = 'as in {"fuel": "fail"} and {"base_ms": 5000}';
    end if;
    select f.key into v_bad from jsonb_each(p_on_failure) f where not f.key = any(c_kinds) or f.value not in ('"fail"', '"dead"') limit 1;
    if found then
        raise exception 'on_failure of % is not a kind of failure with "fail" or "dead"', quote_literal(left(v_bad, 80))
            using errcode = 'LH003', hint = 'kinds are ' || array_to_string(c_kinds, ', ');
    end if;
    select r.key into v_bad
      from jsonb_each(p_retry) r
      left join (values ('base_ms', 0, 86400000), ('factor', 1, 100), ('cap_ms', 0, 31622400000), ('jitter', 0, 1), ('max_attempts', 1, 1000)) l(key, least, most)
        on l.key = r.key
     where l.key is null or jsonb_typeof(r.value) <> 'number'
        or case when jsonb_typeof(r.value) = 'number' then r.value::numeric not between l.least and l.most
                                                           or (r.key in ('base_ms', 'cap_ms', 'max_attempts') and r.value::numeric <> trunc(r.value::numeric)) end
     limit 1;
    if found then
        raise exception 'retry of % is no setting, or outside its range', quote_literal(left(v_bad, 80))
            using errcode = 'LH003', hint = 'base_ms 0 to 86400000, factor 1 to 100, cap_ms 0 to 31622400000, jitter 0 to 1, max_attempts 1 to 1000';
    elsif cardinality(p_imports) > 1000 or (select sum(octet_length(i)) from unnest(p_imports) i) > 100000 then
        raise exception '% imports of % bytes exceed the limit of 1000 of 100000 bytes', cardinality(p_imports), (select sum(octet_length(i)) from unnest(p_imports) i)
            using errcode = 'LH003';
    end if;
    select t.* into v_tenant from leasehold.tenants t where t.tenant_id = p_tenant_id for no key update;
    if leasehold.my_tenants('tenant') is not null then
        for v_name, v_asked in
            select * from (values ('max_fuel', p_fuel), ('max_memory_bytes', p_memory_bytes), ('max_timeout_ms', p_timeout_ms), ('max_result_bytes', p_result_bytes),
                                  ('max_log_bytes', p_log_bytes), ('max_follow_ups', p_follow_ups), ('max_module_bytes', p_size)) n
        loop
            if v_asked is null or v_asked > leasehold.quota(v_tenant.quotas, v_name) then
                raise exception '% of % exceeds % of tenant %, which is %', substr(v_name, 5), coalesce(v_asked::text, 'null'), v_name, quote_literal(v_tenant.name),
                                leasehold.quota(v_tenant.quotas, v_name)
                    using errcode = 'LH034', hint = 'ask for less, or have the operator raise it with: leasehold tenant set TENANT';
            end if;
        end loop;
        if p_memory_bytes < 65536 or p_timeout_ms < 1 or p_fuel < 1 or p_result_bytes < 0 or p_log_bytes < 0 or p_follow_ups < 0 then
            raise exception 'no run can begin with fuel %, % bytes of memory, % ms, % bytes of result, % bytes of log, % follow-ups', p_fuel, p_memory_bytes,
                            p_timeout_ms, p_result_bytes, p_log_bytes, p_follow_ups
                using errcode = 'LH003', hint = 'fuel and timeout are 1 at least, memory 65536, the others 0';
        end if;
    end if;
    if v_tenant.quotas ? 'module_versions' then
        select count(*) into v_used from leasehold.module_versions v where v.tenant_id = p_tenant_id;
        if v_used >= (v_tenant.quotas ->> 'module_versions')::bigint then
            raise exception 'tenant % has % of its quota of % module_versions in use; there is no room for 1 more', quote_literal(v_tenant.name), v_used,
                            v_tenant.quotas ->> 'module_versions'
                using errcode = 'LH033', hint = 'remove a module that is not needed, or have the operator run: leasehold tenant set TENANT --module-versions N';
        end if;
    end if;
    if v_tenant.quotas ? 'module_bytes' and not exists (select from leasehold.module_bytes b where b.tenant_id = p_tenant_id and b.digest = p_digest) then
        select coalesce(sum(octet_length(b.bytes)), 0) into v_used from leasehold.module_bytes b where b.tenant_id = p_tenant_id;
        if v_used + p_size > (v_tenant.quotas ->> 'module_bytes')::bigint then
            raise exception 'tenant % has % of its quota of % module_bytes in use; there is no room for % more', quote_literal(v_tenant.name), v_used,
                            v_tenant.quotas ->> 'module_bytes', p_size
                using errcode = 'LH032', hint = 'remove a module that is not needed, or have the operator run: leasehold tenant set TENANT --module-bytes SIZE';
        end if;
    end if;
end $$;
