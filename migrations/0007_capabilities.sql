-- What modules are granted besides limits, and what runs leave behind while they go on. Nothing here rewrites a row or scans a table: new
-- columns are constant, new tables are empty.

alter table leasehold.module_versions add column grants jsonb not null default '{}';  -- as runner/src/grants.rs reads it

-- What a job leaves for its next run, and how far the present one is: a row a job that has something. It goes when the job has ended.
create table leasehold.notes (
    tenant_id    int not null,
    job_id       bigint not null,
    lease_no     int not null,      -- of the run that wrote last; a later one never loses to an earlier one
    fraction     real,              -- how far that run is
    message      text,
    noted_at     timestamptz not null,
    checkpoint   bytea,             -- outlives runs
    constraint notes_pkey primary key (job_id),
    constraint notes_fraction_is_one check (fraction between 0 and 1),
    constraint notes_fraction_has_a_message check ((fraction is null) = (message is null)),
    constraint notes_checkpoint_is_at_most_4_mib check (octet_length(checkpoint) <= 4194304)
) with (
    fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_cost_delay = 0
);

-- The log of a run that goes on, in chunks of lines. When the run has ended, its log is in attempts, and these go.
create table leasehold.live_logs (
    tenant_id    int not null,
    job_id       bigint not null,
    lease_no     int not null,
    chunk_no     int not null,
    rows         text not null,     -- as leasehold.log_rows reads it
    constraint live_logs_pkey primary key (job_id, lease_no, chunk_no)
) with (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_cost_delay = 0);

-- Secrets of tenants, sealed by a key that the database never sees (runner/src/secrets.rs).
create table leasehold.secrets (
    tenant_id    int not null references leasehold.tenants,
    name         text collate "C" not null,
    key_id       text not null,     -- which key opens it
    nonce        bytea not null,
    sealed       bytea not null,
    created_at   timestamptz not null default now(),
    updated_at   timestamptz not null default now(),
    constraint secrets_pkey primary key (tenant_id, name),
    constraint secrets_name_is_1_to_63_plain_characters check (name ~ '^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$'),
    constraint secrets_sealed_has_a_tag_and_at_most_64_kib check (octet_length(sealed) between 17 and 65552),
    constraint secrets_nonce_has_12_bytes check (octet_length(nonce) = 12)
);
