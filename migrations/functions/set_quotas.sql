-- Sets what a tenant may have: {"queued_jobs": 1000, "queued_bytes": null}; null takes a limit away, what is not named stays. Called by the schema's
-- owner. Answers all that is set then. LH001: no such tenant. LH003: an unknown name or a bad number.
--
-- Quotas, of all that is done for the tenant: queued_jobs and queued_bytes (jobs that have not ended, and their payloads), module_bytes and
-- module_versions. Ceilings, for what a role of the tenant itself uploads: max_fuel, max_memory_bytes, max_timeout_ms (of its jobs, too),
-- max_result_bytes, max_log_bytes, max_follow_ups, max_module_bytes.
--
-- A quota below what is in use takes nothing away: there is no room until it has fallen. Jobs enqueued before the tenant's first quota of
-- queued jobs or bytes are counted by count_jobs.
create or replace function leasehold.set_quotas(tenant text, quotas jsonb) returns jsonb
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
    c_names constant text[] := '{queued_jobs,queued_bytes,module_bytes,module_versions,max_fuel,max_memory_bytes,max_timeout_ms,max_result_bytes,max_log_bytes,max_follow_ups,max_module_bytes}';
    c_greatest constant bigint := 1000000000000000;  -- of any number; and what is left where there is no limit
    c_slots constant int := 16;                      -- how many transactions may have enqueued for one tenant before the next waits
    v_tenant record;
    v_quota record;
    v_left record;
    v_jobs bigint;
    v_bytes bigint;
begin
    if jsonb_typeof(quotas) is distinct from 'object' then
        raise exception 'quotas is not a JSON object' using errcode = 'LH003', hint = 'as in {"queued_jobs": 1000}';
    end if;
    for v_quota in select q.key, q.value from jsonb_each(quotas) q loop
        if not v_quota.key = any(c_names) then
            raise exception 'no quota is named %', quote_literal(left(v_quota.key, 80)) using errcode = 'LH003', hint = 'they are ' || array_to_string(c_names, ', ');
        elsif v_quota.value <> 'null' and (jsonb_typeof(v_quota.value) <> 'number' or v_quota.value::numeric not between 0 and c_greatest
                                           or v_quota.value::numeric <> trunc(v_quota.value::numeric)) then
            raise exception 'quota % of % is not a whole number from 0 to %', v_quota.key, left(v_quota.value::text, 80), c_greatest using errcode = 'LH003';
        end if;
    end loop;
    select t.* into v_tenant from leasehold.tenants t where t.name = tenant for no key update;
    if not found then
        perform leasehold.no_tenant(tenant);
    end if;
    update leasehold.tenants t
       set quotas = jsonb_strip_nulls(t.quotas || set_quotas.quotas),
           counted = v_tenant.counted or set_quotas.quotas ?| '{queued_jobs,queued_bytes}'
     where t.tenant_id = v_tenant.tenant_id
    returning t.quotas into v_left;
    quotas := v_left.quotas;
    v_jobs := coalesce((quotas ->> 'queued_jobs')::bigint, c_greatest);
    v_bytes := coalesce((quotas ->> 'queued_bytes')::bigint, c_greatest);
    if not v_tenant.counted and quotas ?| '{queued_jobs,queued_bytes}' then
        insert into leasehold.quota_slots select v_tenant.tenant_id, s, 0, 0 from generate_series(0, c_slots - 1) s;
    elsif v_tenant.counted then
        -- Waits for transactions that have enqueued; those wait for nobody who holds a slot.
        perform from leasehold.quota_slots s where s.tenant_id = v_tenant.tenant_id order by s.slot for no key update;
        select sum(s.jobs_free) as jobs, sum(s.bytes_free) as bytes into v_left from leasehold.quota_slots s where s.tenant_id = v_tenant.tenant_id;
        v_jobs := v_jobs - coalesce((v_tenant.quotas ->> 'queued_jobs')::bigint, c_greatest) + v_left.jobs;
        v_bytes := v_bytes - coalesce((v_tenant.quotas ->> 'queued_bytes')::bigint, c_greatest) + v_left.bytes;
        loop
            v_left := leasehold.collect_returns(v_tenant.tenant_id);
            exit when v_left.count = 0;
            v_jobs := v_jobs + v_left.jobs; v_bytes := v_bytes + v_left.bytes;
        end loop;
    else
        return quotas;
    end if;
    perform leasehold.fill_slots(v_tenant.tenant_id, array(select s.slot from leasehold.quota_slots s where s.tenant_id = v_tenant.tenant_id order by s.slot),
                                 v_jobs, v_bytes, null);
    return quotas;
end $$;
