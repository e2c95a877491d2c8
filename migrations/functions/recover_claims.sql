-- running -> queued, without counting the attempt, for the jobs of claims that this worker made and does not know of: the
-- claim was committed, its answer got lost. Called by the claimer after a failed claim, while it has none under way. Answers
-- the jobs that were given back.
create or replace function leasehold.recover_claims(p_worker_id bigint, p_known_claim_ids bigint[]) returns setof bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_claim record;
    v_count int;
begin
    for v_claim in
        select c.* from leasehold.claims c where c.worker_id = p_worker_id and c.claim_id <> all(p_known_claim_ids) for update
    loop
        v_count := cardinality(v_claim.job_ids);
        return query
            select leasehold.give_back(p_worker_id, 'release', v_claim.job_ids, v_claim.lease_nos, array_fill(0::bigint, array[v_count]),
                                       array_fill(false, array[v_count]), array_fill(null::text, array[v_count]), array_fill(null::text, array[v_count]),
                                       array_fill(null::bigint, array[v_count]), array_fill(null::bigint, array[v_count]),
                                       array_fill(null::bigint, array[v_count]), array_fill(null::bigint, array[v_count]),
                                       array_fill(null::text, array[v_count]), array_fill(0::bigint, array[v_count]));
        delete from leasehold.claims c where c.claim_id = v_claim.claim_id;
    end loop;
end $$;
