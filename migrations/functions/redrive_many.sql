-- dead or cancelled -> queued, for the jobs that a filter finds: a tenant's, of one module, queue, failure kind, state (dead unless
-- told otherwise), finished between two instants; the oldest first and max_jobs at most, so that a call is a bounded
-- transaction: call again while it answers that many. Jobs that cannot be queued again (their module is gone, their unique key is
-- another's) are passed over. Answers the ids that moved; fewer where the tenant's quota is full then, LH030 or LH031 where it is at the first.
create or replace function leasehold.redrive_many(
    tenant text default 'default', module text default null, queue text default null, failure_kind text default null, state text default 'dead',
    finished_after timestamptz default '-infinity', finished_before timestamptz default 'infinity', max_jobs int default 1000
) returns setof bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_scope record := leasehold.scope(tenant, module);
    v_id bigint;
    v_moved boolean := false;
begin
    if max_jobs not between 1 and 10000 then
        raise exception 'max_jobs % is outside 1 to 10000', max_jobs using errcode = 'LH003';
    elsif state not in ('dead', 'cancelled') then
        raise exception 'state % is neither dead nor cancelled', quote_literal(left(state, 80)) using errcode = 'LH003';
    end if;
    for v_id in
        select h.id from leasehold.history h
         where h.tenant_id = v_scope.tenant_id and h.state = redrive_many.state::leasehold.job_state
           and v_scope.module_id in (0, h.module_id)
           and h.queue = coalesce(redrive_many.queue, h.queue)
           and h.failure_kind is not distinct from coalesce(redrive_many.failure_kind, h.failure_kind)
           and h.finished_at > finished_after and h.finished_at < finished_before
           and exists (select from leasehold.modules m where m.module_id = h.module_id and m.name is not null)
         order by h.finished_at, h.id limit max_jobs for update skip locked
    loop
        begin
            if leasehold.redrive(v_id) then
                return next v_id;
            end if;
            v_moved := true;
        exception
            when sqlstate 'LH006' then
                null;
            when sqlstate 'LH030' or sqlstate 'LH031' then
                if not v_moved then
                    raise;
                end if;
                exit;
        end;
    end loop;
end $$;
