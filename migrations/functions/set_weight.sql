-- Sets a tenant's weight, 1 to 1000: while several tenants have jobs that are due, each gets its weight's share of what their
-- runs use. Answers the weight it had before. Workers hear of it within seconds.
-- LH001: no such tenant. LH003: a weight outside its range.
create or replace function leasehold.set_weight(tenant text, weight int) returns int
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_before int;
begin
    if weight is null or weight not between 1 and 1000 then
        raise exception 'weight % is outside 1 to 1000', coalesce(weight::text, 'null') using errcode = 'LH003', hint = '100 is the weight of a tenant that was given none';
    end if;
    select t.weight into v_before from leasehold.tenants t where t.name = tenant for no key update;
    if not found then
        raise exception 'no tenant is named %', coalesce(quote_literal(left(tenant, 80)), 'null')
            using errcode = 'LH001', hint = 'create it with: leasehold tenant create NAME';
    end if;
    update leasehold.tenants t set weight = set_weight.weight where t.name = tenant;
    return v_before;
end $$;
