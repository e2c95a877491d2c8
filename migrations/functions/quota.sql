-- A tenant's quota or ceiling of that name as set_quotas has it; what holds where the operator has set none, null for no limit. Changes nothing.
-- What holds is a version's default limits, so a customer's upload gets no more than what anybody gets who asks for nothing.
create or replace function leasehold.quota(p_quotas jsonb, p_name text) returns bigint
language sql immutable set search_path = pg_catalog, pg_temp as $$
    select coalesce((p_quotas ->> p_name)::bigint, case p_name
        when 'max_fuel' then 20000000000 when 'max_memory_bytes' then 67108864 when 'max_timeout_ms' then 30000
        when 'max_result_bytes' then 1048576 when 'max_log_bytes' then 16384 when 'max_follow_ups' then 0
        when 'max_module_bytes' then 67108864 end)
$$;
