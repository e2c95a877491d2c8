-- Makes a new job wait for others: the jobs named, and those that are in a group by now. One that has ended is not waited for; where
-- it did not end done, on_dead says what becomes of the new job. Part of enqueue. LH004: there is no such job of this tenant.
create or replace function leasehold.wait_for(p_id bigint, p_tenant_id int, p_after bigint[], p_group_id bigint, p_on_dead text) returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
    v_after bigint;
    v_count bigint;
    v_dead bigint[];
begin
    select count(*) into v_count from unnest(p_after) a;
    if v_count > 10000 then
        raise exception 'after names % jobs; the limit is 10000', v_count using errcode = 'LH003', hint = 'put them into a group and wait for that';
    end if;
    select a into v_after from unnest(p_after) a
     where a is null or (not exists (select from leasehold.live_jobs j where j.id = a and j.tenant_id = p_tenant_id)
                     and not exists (select from leasehold.history h where h.id = a and h.tenant_id = p_tenant_id)) limit 1;
    if found then
        raise exception 'there is no job % to wait for', coalesce(v_after::text, 'null') using errcode = 'LH004';
    end if;
    insert into leasehold.dependencies (after_id, job_id)
    select distinct j.id, p_id
      from (select a from unnest(p_after) a union select m.job_id from leasehold.group_members m where m.group_id = p_group_id) u(a)
      join leasehold.live_jobs j on j.id = u.a and j.tenant_id = p_tenant_id
     where j.id <> p_id;
    v_dead := array(
        select distinct h.id
          from (select a from unnest(p_after) a union select m.job_id from leasehold.group_members m where m.group_id = p_group_id) u(a)
          join leasehold.history h on h.id = u.a and h.tenant_id = p_tenant_id and h.state <> 'done'
         where not exists (select from leasehold.live_jobs j where j.id = h.id));
    if cardinality(v_dead) > 0 and coalesce(p_on_dead, 'cancel') = 'cancel' then
        perform leasehold.move_to_cancelled(p_id, null, null, null, null, null);
        return;
    elsif p_on_dead = 'wait' then
        insert into leasehold.dependencies (after_id, job_id) select d, p_id from unnest(v_dead) d;
    end if;
    perform leasehold.stop_waiting(p_id);
end $$;
