-- Takes places for jobs and their payloads' bytes out of a tenant's quota, in the caller's transaction; part of enqueue, enqueue_many and
-- redrive, where the tenant is counted. Answers true: the job is counted. LH030, LH031: the quota of queued_jobs or queued_bytes has no room for them.
--
-- Never more than the limit: a place is in a slot, on its way back, or a job's. And as many as that: it is refused only once every slot has been
-- looked at. A slot that another open transaction took from is waited for, for a second at most and holding none, so that no two producers
-- can block each other; a worker (leasehold.waits = 'no') does not wait at all. What such transactions hold counts as used then.
create or replace function leasehold.take_quota(p_tenant_id int, p_jobs bigint, p_bytes bigint) returns boolean
language plpgsql volatile set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
    c_patience constant interval := '1 second';
    v_xid xid8 := pg_current_xact_id();
    v_until timestamptz;
    v_pause float8 := 0.002;
    v_slot record;
    v_returned record;
    v_slots smallint[];
    v_jobs bigint;
    v_bytes bigint;
    v_slots_of refcursor;
    v_tenant record;
    v_held boolean;
    v_hint text;
begin
    loop
        -- Mostly this is all: a slot with room that nobody is at, or the one that this transaction has taken from before.
        update leasehold.quota_slots s
           set jobs_free = s.jobs_free - p_jobs, bytes_free = s.bytes_free - p_bytes, taken_by = v_xid
         where s.tenant_id = p_tenant_id and s.slot = (
                select i.slot from leasehold.quota_slots i
                 where i.tenant_id = p_tenant_id and i.jobs_free >= p_jobs and i.bytes_free >= p_bytes
                 order by (i.taken_by = v_xid) desc nulls last, i.jobs_free desc limit 1 for no key update skip locked);
        if found then
            return true;
        end if;

        -- Out of several slots, and out of what has come back: in a block that can be undone, so that nothing is held while waiting.
        begin
            v_slots := '{}'; v_jobs := 0; v_bytes := 0;
            open v_slots_of for
                select s.slot, s.jobs_free, s.bytes_free from leasehold.quota_slots s
                 where s.tenant_id = p_tenant_id order by s.slot = 0 desc, s.jobs_free desc for no key update skip locked;
            loop
                fetch v_slots_of into v_slot;
                exit when not found;
                v_slots := v_slots || v_slot.slot; v_jobs := v_jobs + v_slot.jobs_free; v_bytes := v_bytes + v_slot.bytes_free;
                while v_slot.slot = 0 and (v_jobs < p_jobs or v_bytes < p_bytes) loop  -- the one that owes, where any does
                    v_returned := leasehold.collect_returns(p_tenant_id);
                    exit when v_returned.count = 0;
                    v_jobs := v_jobs + v_returned.jobs; v_bytes := v_bytes + v_returned.bytes;
                end loop;
                exit when v_jobs >= p_jobs and v_bytes >= p_bytes;
            end loop;
            close v_slots_of;
            if v_jobs < p_jobs or v_bytes < p_bytes then
                raise exception using errcode = 'LH000';  -- caught right here
            end if;
            v_jobs := v_jobs - p_jobs; v_bytes := v_bytes - p_bytes;
            perform leasehold.fill_slots(p_tenant_id, v_slots, v_jobs, v_bytes, v_xid);
            return true;
        exception when sqlstate 'LH000' then
            null;
        end;

        select t.*, q.slots into v_tenant
          from leasehold.tenants t, (select count(*) as slots from leasehold.quota_slots s where s.tenant_id = p_tenant_id) q
         where t.tenant_id = p_tenant_id;
        v_held := cardinality(v_slots) < v_tenant.slots;
        v_until := coalesce(v_until, clock_timestamp() + c_patience);
        exit when not v_held or clock_timestamp() >= v_until or current_setting('leasehold.waits', true) = 'no';
        perform pg_sleep(v_pause);
        v_pause := least(v_pause * 1.5, 0.05);
    end loop;

    v_hint := case when v_held then 'some of it is held by transactions that are still open; ' else '' end
              || 'wait until jobs have ended, or have the operator raise it with: leasehold tenant set TENANT --queued-';
    if v_jobs < p_jobs then
        raise exception 'tenant % has % of its quota of % queued_jobs in use; there is no room for % more', quote_literal(v_tenant.name),
                        (v_tenant.quotas ->> 'queued_jobs')::bigint - v_jobs, v_tenant.quotas ->> 'queued_jobs', p_jobs
            using errcode = 'LH030', hint = v_hint || 'jobs N';
    end if;
    raise exception 'tenant % has % of its quota of % queued_bytes in use; there is no room for % more', quote_literal(v_tenant.name),
                    (v_tenant.quotas ->> 'queued_bytes')::bigint - v_bytes, v_tenant.quotas ->> 'queued_bytes', p_bytes
        using errcode = 'LH031', hint = v_hint || 'bytes SIZE';
end $$;
