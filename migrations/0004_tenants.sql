-- Tenants as customers: quotas, and the database roles that may act for a tenant. Nothing here rewrites a row or scans a table. Tables
-- are altered in the order in which enqueue, claim and the settling functions take them.

-- quotas: what the operator has set, by name (functions/set_quotas.sql). counted: its jobs are counted in quota_slots from when the first
-- quota of queued jobs or bytes was set.
alter table leasehold.tenants
    add column quotas        jsonb not null default '{}',
    add column counted       boolean not null default false,
    add column removing_at   timestamptz,  -- nothing is enqueued or begun for it any more
    add column removing_xid  xid8;         -- a transaction after that had been committed: older ones may still bring rows
alter table leasehold.live_jobs add column counted boolean;  -- true: it took a place of its tenant's quota, and gives it back when it ends

-- What is left of a tenant's quota of queued jobs and bytes, in slots: a transaction takes from one that no other is at, so producers do not
-- wait for each other. The slots, quota_returns and what counted jobs have taken always add up to the limit.
create table leasehold.quota_slots (
    tenant_id   int not null references leasehold.tenants on delete cascade,
    slot        smallint not null,
    jobs_free   bigint not null,
    bytes_free  bigint not null,
    taken_by    xid8,                        -- the last transaction that took from it: it goes on with this one
    primary key (tenant_id, slot),
    -- Where a limit was set below what is in use, what returns pays that first.
    constraint quota_slots_only_the_first_owes check (slot = 0 or (jobs_free >= 0 and bytes_free >= 0))
) with (fillfactor = 10, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_cost_delay = 0);

-- Places that jobs gave back when they ended, on their way into a slot: who ends a job waits for nobody's slot.
create table leasehold.quota_returns (
    tenant_id  int not null,
    jobs       bigint not null,
    bytes      bigint not null
) with (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
create index quota_returns_by_tenant on leasehold.quota_returns (tenant_id);

-- Which database roles may act for which tenants. By number and name: a role that was dropped and made anew has nothing.
create table leasehold.tenant_roles (
    tenant_id   int not null references leasehold.tenants on delete cascade,
    role_oid    oid not null,
    role_name   name not null,
    level       text collate "C" not null,
    granted_at  timestamptz not null default now(),
    primary key (tenant_id, role_oid),
    constraint tenant_roles_level_is_known check (level in ('tenant', 'producer'))
);

-- What follows needs these to exist; their text is in functions/, which comes after.
create function leasehold.my_tenants(p_least text default 'producer') returns int[] language sql stable as 'select null::int[]';
create function leasehold.return_quota() returns trigger language plpgsql as 'begin return null; end';
create function leasehold.fold_returns() returns trigger language plpgsql as 'begin return null; end';

create trigger return_quota after delete on leasehold.live_jobs for each row when (old.counted) execute function leasehold.return_quota();
create trigger return_quota_folded after delete on leasehold.live_jobs for each statement execute function leasehold.fold_returns();

-- The second fence around rows, behind the grants: whoever is granted a table by mistake sees the rows of its tenants. The schema's owner,
-- and with it each function here, is not bound by it.
do $$
declare
    v_table record;
begin
    for v_table in
        select c.oid::regclass as name, exists (select from pg_attribute a where a.attrelid = c.oid and a.attname = 'tenant_id') as tenants
          from pg_class c join unnest(array['tenants', 'modules', 'module_versions', 'lanes', 'unique_keys', 'live_jobs']) with ordinality f(name, n)
               on f.name = c.relname
         where c.relnamespace = 'leasehold'::regnamespace
         order by f.n
    loop
        execute format('alter table %s enable row level security', v_table.name);
    end loop;
    for v_table in
        select c.oid::regclass as name, c.relispartition, c.relrowsecurity,
               exists (select from pg_attribute a where a.attrelid = c.oid and a.attname = 'tenant_id') as tenants
          from pg_class c
         where c.relnamespace = 'leasehold'::regnamespace and c.relkind in ('r', 'p') and c.relname <> 'schema_version'
         order by c.oid
    loop
        if not v_table.relrowsecurity then
            execute format('alter table %s enable row level security', v_table.name);
        end if;
        -- A partition is nobody's to look at by itself.
        continue when v_table.relispartition;
        execute format('create policy own_rows on %s for select using ((select leasehold.my_tenants()) is null%s)', v_table.name,
                       case when v_table.tenants then ' or tenant_id = any((select leasehold.my_tenants())::int[])' else '' end);
    end loop;
end $$;
