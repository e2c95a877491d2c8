-- Wakes the workers that said they sleep on a queue: one NOTIFY, and none on a busy system, since NOTIFY takes a
-- database-wide lock at commit. A hint only: polling is the contract.
create or replace function leasehold.wake(p_queue text) returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
    if exists (select from leasehold.sleepers s where s.queue = p_queue and s.until > clock_timestamp()) then
        perform pg_catalog.pg_notify('leasehold_wake', p_queue);
    end if;
end $$;
