-- Counts jobs into their tenant's quota that were enqueued before it had one, by ranges of ids: call again from what it answers until that is null, as
-- `leasehold tenant set` does. Called by the schema's owner, after set_quotas. Idempotent. Waits for transactions that have enqueued for the tenant;
-- jobs that somebody holds are passed over. LH001: no such tenant. LH003: it has no quota of queued jobs or bytes.
create or replace function leasehold.count_jobs(tenant text, from_id bigint default 0, max_ids int default 10000) returns bigint
language plpgsql volatile set search_path = pg_catalog, pg_temp set jit = off as $$
declare
    v_tenant record;
    v_left record;
    v_ids bigint[];
    v_found record;
begin
    select t.* into v_tenant from leasehold.tenants t where t.tenant_id = leasehold.find_tenant(tenant, 'tenant') for no key update;
    if not v_tenant.counted then
        raise exception 'tenant % has no quota of queued_jobs or queued_bytes', quote_literal(tenant) using errcode = 'LH003', hint = 'set one first';
    elsif from_id > (select s.last_value from leasehold.live_jobs_id_seq s) then
        return null;
    end if;
    v_ids := array(select j.id from leasehold.live_jobs j where j.id >= from_id and j.id < from_id + max_ids and j.tenant_id = v_tenant.tenant_id
                                                            and j.counted is null for no key update skip locked);
    if cardinality(v_ids) > 0 then
        -- All slots, or one might have room while the first owes.
        perform from leasehold.quota_slots s where s.tenant_id = v_tenant.tenant_id order by s.slot for no key update;
        select array_agg(s.slot order by s.slot) as slots, sum(s.jobs_free) as jobs, sum(s.bytes_free) as bytes into v_left
          from leasehold.quota_slots s where s.tenant_id = v_tenant.tenant_id;
        with counted as (
            update leasehold.live_jobs j set counted = true where j.id = any(v_ids) returning octet_length(j.payload) as bytes
        )
        select count(*) as jobs, coalesce(sum(c.bytes), 0) as bytes into v_found from counted c;
        perform leasehold.fill_slots(v_tenant.tenant_id, v_left.slots, (v_left.jobs - v_found.jobs)::bigint, (v_left.bytes - v_found.bytes)::bigint, null);
    end if;
    return from_id + max_ids;
end $$;
