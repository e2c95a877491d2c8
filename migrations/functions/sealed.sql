-- Its argument. Columns of the my_ views go through it, so that no condition on them is tried on a stranger's row: the planner takes functions like =
-- and < on trust even below a barrier, and EXPLAIN ANALYZE tells how many rows each let through. Not so where what they look at is volatile.
create or replace function leasehold.sealed(anyelement) returns anyelement
language sql volatile parallel restricted  -- and no search_path, so that it costs next to nothing: its one name is whole
as 'select case when pg_catalog.random() is not null then $1 end';
