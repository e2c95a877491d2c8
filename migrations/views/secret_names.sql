-- Which secrets there are, whose, and under which key; not what they say.
create or replace view leasehold.secret_names as
select t.name as tenant, s.name, s.key_id, s.created_at, s.updated_at
  from leasehold.secrets s join leasehold.tenants t on t.tenant_id = s.tenant_id;
