-- Jobs that took a place of their tenant's quota. By itself, since a transaction that locks live_jobs and tenants would meet readers of the view
-- of jobs, and producers, that lock them in another order each.

alter table leasehold.live_jobs add column counted boolean;  -- true: it took a place, and gives it back when it ends

-- The triggers need these to exist; their text is in functions/, which comes after.
create function leasehold.return_quota() returns trigger language plpgsql as 'begin return null; end';
create function leasehold.fold_returns() returns trigger language plpgsql as 'begin return null; end';

create trigger return_quota after delete on leasehold.live_jobs for each row when (old.counted) execute function leasehold.return_quota();
create trigger return_quota_folded after delete on leasehold.live_jobs for each statement execute function leasehold.fold_returns();
