-- What is special about a job, as live_jobs.options holds it; null for a plain job. LH003: an argument outside its range.
create or replace function leasehold.job_options(
    p_concurrency_key text, p_concurrency_limit int, p_rate_key text, p_unique_key text, p_unique_for interval, p_group_id bigint,
    p_backoff_factor float8, p_backoff_cap interval, p_backoff_jitter float8, p_notify boolean, p_on_dead text
) returns jsonb
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
    perform leasehold.check_key('concurrency_key', p_concurrency_key), leasehold.check_key('rate_key', p_rate_key),
            leasehold.check_key('unique_key', p_unique_key);
    if p_concurrency_limit not between 1 and 100000 then
        raise exception 'concurrency_limit % is outside 1 to 100000', p_concurrency_limit using errcode = 'LH003';
    elsif p_concurrency_limit <> 1 and p_concurrency_key is null then
        raise exception 'concurrency_limit % without a concurrency_key limits nothing', p_concurrency_limit using errcode = 'LH003';
    elsif p_unique_for is not null and p_unique_key is null then
        raise exception 'unique_for % without a unique_key', p_unique_for using errcode = 'LH003';
    elsif extract(epoch from p_unique_for) not between 0 and 31622400 then
        raise exception 'unique_for % is outside 0 s to 366 days', p_unique_for using errcode = 'LH003';
    elsif p_backoff_factor not between 1 and 100 then
        raise exception 'backoff_factor % is outside 1 to 100', p_backoff_factor using errcode = 'LH003';
    elsif extract(epoch from p_backoff_cap) not between 0 and 31622400 then
        raise exception 'backoff_cap % is outside 0 s to 366 days', p_backoff_cap using errcode = 'LH003';
    elsif p_backoff_jitter not between 0 and 1 then
        raise exception 'backoff_jitter % is outside 0 to 1', p_backoff_jitter using errcode = 'LH003';
    elsif p_on_dead not in ('cancel', 'run', 'wait') then
        raise exception 'on_dead % is none of cancel, run and wait', quote_literal(left(p_on_dead, 80)) using errcode = 'LH003';
    end if;
    return nullif(jsonb_strip_nulls(jsonb_build_object(
        'concurrency_key', p_concurrency_key, 'concurrency_limit', nullif(p_concurrency_limit, 1), 'rate_key', p_rate_key,
        'unique_key', p_unique_key, 'unique_for_ms', (extract(epoch from p_unique_for) * 1000)::bigint, 'group_id', p_group_id,
        'backoff_factor', p_backoff_factor, 'backoff_cap_ms', (extract(epoch from p_backoff_cap) * 1000)::bigint, 'backoff_jitter', p_backoff_jitter,
        'notify', nullif(p_notify, false), 'on_dead', nullif(p_on_dead, 'cancel'))), '{}');
end $$;
