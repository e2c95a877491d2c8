-- Turns row level security on for one table of the schema: the second fence around rows, behind the grants. Whoever is granted a table by mistake sees
-- the rows of its tenants (my_tenants). The schema's owner, and with it each function here, is not bound by it. Called by migrate for each
-- table that has none, in a transaction of its own each: two such locks in one would meet readers that take them in another order.
create or replace function leasehold.fence(p_table text) returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp set lock_timeout = '5s' as $$
declare
    v_table regclass := format('leasehold.%I', p_table);
begin
    execute format('alter table %s enable row level security', v_table);
    -- A partition is nobody's to look at by itself. Another migrator may have been first, for whom the lock has waited.
    if not (select c.relispartition from pg_class c where c.oid = v_table)
       and not exists (select from pg_policy p where p.polrelid = v_table and p.polname = 'own_rows') then
        execute format('create policy own_rows on %s for select using ((select leasehold.my_tenants()) is null%s)', v_table,
                       case when exists (select from pg_attribute a where a.attrelid = v_table and a.attname = 'tenant_id')
                            then ' or tenant_id = any((select leasehold.my_tenants())::int[])' else '' end);
    end if;
end $$;
