-- When the next token of a rate is there: p_now or earlier when it is. A rate is a bucket that fills by per_second up to burst.

-- How many tokens it holds. Both are expanded where they are called, which a setting of their own would prevent.
create or replace function leasehold.tokens_at(p_tokens float8, p_refilled_at timestamptz, p_per_second float8, p_burst float8, p_now timestamptz) returns float8
language sql immutable
return least(p_burst, p_tokens + p_per_second * greatest(extract(epoch from p_now - p_refilled_at), 0));

create or replace function leasehold.next_token(p_tokens float8, p_refilled_at timestamptz, p_per_second float8, p_burst float8, p_now timestamptz) returns timestamptz
language sql immutable
return case when leasehold.tokens_at(p_tokens, p_refilled_at, p_per_second, p_burst, p_now) >= 1 - 1e-6 then p_now
            else greatest(p_now, p_refilled_at) + (1 - p_tokens) / p_per_second * interval '1 second'
                 - case when p_refilled_at > p_now then interval '0' else p_now - p_refilled_at end end;
