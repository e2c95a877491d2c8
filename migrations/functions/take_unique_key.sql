-- Makes a new job the owner of its unique key, or answers whose the key is: a live job's, or that of one that has ended while its
-- period lasts. Part of enqueue. Waits for another transaction that is taking the same key, and for nobody else.
create or replace function leasehold.take_unique_key(p_tenant_id int, p_options jsonb, p_id bigint, p_now timestamptz) returns bigint
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
    v_key text := p_options ->> 'unique_key';
    v_until timestamptz := p_now + (p_options ->> 'unique_for_ms')::bigint * interval '1 millisecond';
    v_owner record;
begin
    for v_try in 1..10 loop
        insert into leasehold.unique_keys values (p_tenant_id, v_key, p_id, v_until) on conflict do nothing;
        if found then
            return p_id;
        end if;
        select u.job_id, u.until into v_owner from leasehold.unique_keys u where u.tenant_id = p_tenant_id and u.key = v_key;
        if not found then
            continue;  -- it was dropped just now, or is newer than this transaction's snapshot
        elsif v_owner.until > p_now or exists (select from leasehold.live_jobs j where j.id = v_owner.job_id) then
            return v_owner.job_id;
        end if;
        update leasehold.unique_keys u set job_id = p_id, until = v_until
         where u.tenant_id = p_tenant_id and u.key = v_key and u.job_id = v_owner.job_id;
        if found then
            return p_id;
        end if;
    end loop;
    raise exception 'unique key % was taken by a transaction that this one cannot see', quote_literal(v_key)
        using errcode = 'serialization_failure', hint = 'run the transaction again';
end $$;
