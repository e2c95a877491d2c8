-- Puts what came back of quotas into a slot of each tenant: the poorest that nobody is at. A trigger once a statement that ended jobs, after
-- return_quota, so that slots are filled by short transactions. Where it cannot, because open transactions are at the slots, take_quota and
-- the next end do.
create or replace function leasehold.fold_returns() returns trigger
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
    c_tenants constant int := 64;
    v_tenant_id int;
    v_slot smallint;
    v_returned record;
begin
    -- Who looks through an old snapshot would meet slots that have changed since, and fail.
    if not exists (select from leasehold.quota_returns) or current_setting('transaction_isolation') <> 'read committed' then
        return null;
    end if;
    for v_tenant_id in
        with recursive t(tenant_id) as (
            (select r.tenant_id from leasehold.quota_returns r order by r.tenant_id limit 1)
            union all
            select (select r.tenant_id from leasehold.quota_returns r where r.tenant_id > t.tenant_id order by r.tenant_id limit 1) from t where t.tenant_id is not null
        )
        select t.tenant_id from t where t.tenant_id is not null limit c_tenants
    loop
        select s.slot into v_slot from leasehold.quota_slots s
         where s.tenant_id = v_tenant_id
           and (s.slot = 0 or not exists (select from leasehold.quota_slots o where o.tenant_id = v_tenant_id and o.slot = 0
                                                                                and (o.jobs_free < 0 or o.bytes_free < 0)))
         order by s.jobs_free limit 1 for no key update skip locked;
        continue when not found;
        v_returned := leasehold.collect_returns(v_tenant_id);
        update leasehold.quota_slots s set jobs_free = s.jobs_free + v_returned.jobs, bytes_free = s.bytes_free + v_returned.bytes
         where s.tenant_id = v_tenant_id and s.slot = v_slot;
    end loop;
    return null;
end $$;
