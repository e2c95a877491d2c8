-- Checks what enqueue and enqueue_many were asked for and looks up the ids. Changes nothing but lanes: a first job of a
-- (queue, priority) pair, and a tenant's first in it, makes the lane known to the claimers.
drop function if exists leasehold.check_enqueue(text, text, text, int, int, interval, interval, int);
create or replace function leasehold.check_enqueue(
    p_module text, p_tenant text, p_queue text, p_priority int, p_max_attempts int, p_timeout interval, p_backoff interval,
    p_version int, out tenant_id int, out module_id int, out max_attempts int, out timeout_ms int, out backoff_ms int, out counted boolean
)
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
    v_retry jsonb;
    v_mine int[] := leasehold.my_tenants();  -- null: all
    v_longest bigint;
begin
    select t.tenant_id, t.counted, m.module_id, v.retry into tenant_id, counted, module_id, v_retry
      from leasehold.tenants t
      left join leasehold.modules m on m.tenant_id = t.tenant_id and m.name = p_module
      left join leasehold.module_versions v on v.module_id = m.module_id and v.version = coalesce(p_version, m.active_version)
     where t.name = p_tenant and t.removing_at is null;
    if tenant_id is null or not coalesce(tenant_id = any(v_mine), true) then
        perform leasehold.no_tenant(p_tenant);
    elsif module_id is null then
        raise exception 'tenant % has no module named %', quote_literal(p_tenant), coalesce(quote_literal(left(p_module, 80)), 'null')
            using errcode = 'LH002', hint = 'upload it with: leasehold module push NAME FILE --tenant TENANT';
    elsif p_version is not null and v_retry is null then
        raise exception 'module % of tenant % has no version %', quote_literal(p_module), quote_literal(p_tenant), p_version
            using errcode = 'LH002', hint = 'list its versions with: leasehold module show NAME';
    elsif p_priority is null or p_priority not between -100 and 100 then
        raise exception 'priority % is outside -100 to 100', p_priority using errcode = 'LH003';
    elsif p_max_attempts not between 1 and 1000 then
        raise exception 'max_attempts % is outside 1 to 1000', p_max_attempts using errcode = 'LH003';
    end if;
    max_attempts := coalesce(p_max_attempts, (v_retry ->> 'max_attempts')::int, 5);
    if p_timeout is not null then
        timeout_ms := leasehold.milliseconds('timeout', p_timeout, 1);
        if v_mine is not null then
            select leasehold.quota(t.quotas, 'max_timeout_ms') into v_longest from leasehold.tenants t where t.tenant_id = check_enqueue.tenant_id;
            if timeout_ms > v_longest then
                raise exception 'timeout of % ms exceeds max_timeout_ms of tenant %, which is %', timeout_ms, quote_literal(p_tenant), v_longest
                    using errcode = 'LH034', hint = 'ask for less, or have the operator raise it with: leasehold tenant set TENANT --max-timeout DURATION';
            end if;
        end if;
    end if;
    if p_backoff is not null then
        backoff_ms := leasehold.milliseconds('backoff', p_backoff, 0);
    end if;
    -- The name of a queue that has a lane was found good when its first job came.
    if not exists (select from leasehold.tenant_lanes a
                    where a.queue = p_queue and a.tenant_id = check_enqueue.tenant_id and a.priority = p_priority::smallint) then
        if p_queue is null or p_queue !~ '^[a-z0-9][a-z0-9_.-]{0,62}$' then
            raise exception 'queue name % is not 1 to 63 characters of a-z, 0-9, "_", "." and "-"', coalesce(quote_literal(left(p_queue, 80)), 'null')
                using errcode = 'LH003';
        end if;
        if not exists (select from leasehold.lanes l where l.queue = p_queue and l.priority = p_priority::smallint) then
            insert into leasehold.lanes values (p_queue, p_priority);
        end if;
        insert into leasehold.tenant_lanes values (check_enqueue.tenant_id, p_queue, p_priority);
    end if;
end $$;
