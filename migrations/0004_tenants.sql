-- Tenants as customers: quotas, and the database roles that may act for a tenant. Nothing here rewrites a row or scans a table.

-- quotas: what the operator has set, by name (functions/set_quotas.sql). counted: its jobs are counted in quota_slots from when the first
-- quota of queued jobs or bytes was set.
alter table leasehold.tenants
    add column quotas        jsonb not null default '{}',
    add column counted       boolean not null default false,
    add column removing_at   timestamptz,  -- nothing is enqueued or begun for it any more
    add column removing_xid  xid8;         -- a transaction after that had been committed: older ones may still bring rows

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
