-- Takes what came back of a tenant's quota out of quota_returns and answers the sums and how
-- many rows they were, for whoever holds a slot to put it into. At most
-- so many rows a call that one takes milliseconds; those that somebody else is collecting are left to them.
create or replace function leasehold.collect_returns(p_tenant_id int, out jobs bigint, out bytes bigint, out count bigint)
language plpgsql volatile set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
    c_rows constant int := 10000;
begin
    with gone as (
        delete from leasehold.quota_returns r
         where r.ctid = any(array(select i.ctid from leasehold.quota_returns i where i.tenant_id = p_tenant_id limit c_rows for update skip locked))
        returning r.jobs, r.bytes
    )
    select coalesce(sum(g.jobs), 0), coalesce(sum(g.bytes), 0), count(*) into jobs, bytes, count from gone g;
end $$;
