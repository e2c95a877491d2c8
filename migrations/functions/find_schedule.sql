-- The row of a schedule, locked, for what producers do to one. Waits for whoever fires it in this moment. Changes nothing.
-- LH001: no such tenant. LH020: no such schedule.
create or replace function leasehold.find_schedule(p_name text, p_tenant text) returns leasehold.timetable
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
    v_tenant_id int := leasehold.find_tenant(p_tenant, 'tenant');
    v_schedule leasehold.timetable;
begin
    select s.* into v_schedule from leasehold.timetable s where s.tenant_id = v_tenant_id and s.name = p_name for update;
    if not found then
        raise exception 'tenant % has no schedule named %', quote_literal(p_tenant), coalesce(quote_literal(left(p_name, 80)), 'null')
            using errcode = 'LH020', hint = 'list them with: leasehold schedule list --tenant TENANT';
    end if;
    return v_schedule;
end $$;
