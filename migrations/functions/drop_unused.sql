-- Drops what nobody needs any more, and what would do no harm but take room: gates, unique keys, groups,
-- notes and logs of runs whose worker died before it tidied up. Called by each worker's
-- maintenance, every hour. Idempotent, bounded. Answers how many rows it dropped: call again while it is many.
create or replace function leasehold.drop_unused(p_limit int) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set lock_timeout = '1s'
set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
    v_count bigint := 0;
    v_rows bigint;
begin
    -- Gates that have been quiet for a while and that nobody set up.
    delete from leasehold.gates g
     where g.gate_id in (
        select i.gate_id from leasehold.gates i
         where i.running = 0 and not exists (select from leasehold.gate_lines l where l.gate_id = i.gate_id)
           and (i.kind = 'key' and i.used_at < now() - interval '10 minutes'
             or i.kind = 'off' and not exists (select from leasehold.modules m where m.module_id = i.module_id and m.active_version is null)
             or i.kind = 'pause' and i.paused_at is null or i.kind = 'cap' and i.wanted = 2147483647 or i.kind = 'rate' and i.per_second = 1e9)
         limit p_limit for update skip locked);
    get diagnostics v_rows = row_count;
    v_count := v_count + v_rows;
    delete from leasehold.unique_keys u
     where (u.tenant_id, u.key) in (
        select i.tenant_id, i.key from leasehold.unique_keys i
         where coalesce(i.until <= now(), true) and not exists (select from leasehold.live_jobs j where j.id = i.job_id)
         limit p_limit for update skip locked);
    get diagnostics v_rows = row_count;
    v_count := v_count + v_rows;
    delete from leasehold.group_members m
     where (m.group_id, m.job_id) in (
        select i.group_id, i.job_id from leasehold.group_members i
         where not exists (select from leasehold.live_jobs j where j.id = i.job_id) and not exists (select from leasehold.history h where h.id = i.job_id)
         limit p_limit);
    get diagnostics v_rows = row_count;
    v_count := v_count + v_rows;
    delete from leasehold.notes n
     where n.job_id in (
        select i.job_id from leasehold.notes i where not exists (select from leasehold.live_jobs j where j.id = i.job_id) limit p_limit for update skip locked);
    get diagnostics v_rows = row_count;
    v_count := v_count + v_rows;
    delete from leasehold.live_logs l
     where (l.job_id, l.lease_no, l.chunk_no) in (
        select i.job_id, i.lease_no, i.chunk_no from leasehold.live_logs i
         where not exists (select from leasehold.live_jobs j where j.id = i.job_id and j.lease_no = i.lease_no and j.running)
         limit p_limit for update skip locked);
    get diagnostics v_rows = row_count;
    return v_count + v_rows;
end $$;
