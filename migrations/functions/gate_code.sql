-- Changes nothing. The word for what a gate keeps a job from, as explain and count_waiting say it; null where the gate is open. p_limit is the
-- cap's, or that of the job's concurrency key.
create or replace function leasehold.gate_code(
    p_kind text, p_module_id int, p_paused_at timestamptz, p_running int, p_limit int, p_token_at timestamptz, p_now timestamptz
) returns text
language sql immutable
return case when p_kind = 'pause' and p_paused_at is not null then case when p_module_id = 0 then 'tenant_paused' else 'module_paused' end
            when p_kind = 'cap' and p_running >= p_limit then 'at_cap'
            when p_kind = 'key' and p_running >= p_limit then 'key_held'
            when p_kind = 'rate' and p_token_at > p_now then 'rate' end;
