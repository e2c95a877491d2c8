-- Shares: what a tenant may use of the workers while others want them too. Nothing here rewrites a row or scans a table.

alter table leasehold.tenants add column weight int not null default 100;
alter table leasehold.tenants add constraint tenants_weight_is_1_to_1000 check (weight between 1 and 1000) not valid;

-- Which tenants have ever had a job in which lane; like lanes, without a unique index. A claim that meets a long backlog asks
-- here whose jobs may lie in it.
create table leasehold.tenant_lanes (
    tenant_id  int not null,
    queue      text collate "C" not null,
    priority   smallint not null
);
create index tenant_lanes_by_queue on leasehold.tenant_lanes (queue, tenant_id, priority);

-- Whether jobs can be found by their tenant (live_jobs_by_tenant is there, and tenant_lanes is complete): `leasehold migrate`
-- sees to that last, without a lock, where there are jobs already. Until then claims take jobs as they come.
create table leasehold.sharing (
    ready  boolean primary key,
    constraint sharing_is_one_row check (ready)
);

-- One tenant's jobs in a lane. All columns ascend, so that a claim can ask for a place among them by one comparison of rows,
-- for which no other index is of use whatever the statistics say. Nothing in it is changed by a claim.
do $$
begin
    if not exists (select from leasehold.live_jobs) then
        create index live_jobs_by_tenant on leasehold.live_jobs (queue, tenant_id, priority, run_at, id);
        insert into leasehold.sharing values (true);
    end if;
end $$;
