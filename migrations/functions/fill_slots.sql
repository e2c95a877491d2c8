-- Spreads what is left evenly over slots of a tenant that the caller holds; a debt is the first slot's alone, and only ever that slot's.
create or replace function leasehold.fill_slots(p_tenant_id int, p_slots smallint[], p_jobs bigint, p_bytes bigint, p_xid xid8) returns void
language sql volatile set search_path = pg_catalog, pg_temp as $$
    update leasehold.quota_slots s
       set taken_by = p_xid,
           jobs_free = case when p_jobs < 0 then case when s.slot = 0 then p_jobs else 0 end
                            else p_jobs / cardinality(p_slots) + (u.n <= p_jobs % cardinality(p_slots))::int end,
           bytes_free = case when p_bytes < 0 then case when s.slot = 0 then p_bytes else 0 end
                             else p_bytes / cardinality(p_slots) + (u.n <= p_bytes % cardinality(p_slots))::int end
      from unnest(p_slots) with ordinality u(slot, n)
     where s.tenant_id = p_tenant_id and s.slot = u.slot
$$;
