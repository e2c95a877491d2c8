-- What runs used. A settling statement adds a row for each tenant and module that it settles runs of, and never touches one that is there: no
-- row is hot. sweep adds them up by the day.
create table leasehold.usage_log (
    tenant_id            int not null,
    module_id            int not null,
    day                  date not null,             -- in UTC, when the runs were settled
    runs                 bigint not null,
    failed               bigint not null,           -- of the runs; crashed ones too
    crashed              bigint not null,           -- ended with their worker: what they used nobody knows
    cpu_us               bigint not null,
    fuel                 numeric not null,
    memory_byte_seconds  float8 not null,           -- the most memory that a run held, times how long it took
    bytes_in             bigint not null,           -- payloads
    bytes_out            bigint not null            -- results
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);

create table leasehold.usage_days (
    like leasehold.usage_log,
    constraint usage_days_pkey primary key (tenant_id, module_id, day)
);
