-- Roles and grants, applied anew by each migrate. leasehold_worker runs jobs; leasehold_producer puts jobs in and looks at
-- them, for all tenants; leasehold_tenant acts for the tenants that its members were granted (grant_tenant makes them members).
-- All are group roles: grant the first two to login roles. Where the migrating role may not create roles, this is left to the
-- administrator, and nothing else depends on it.
revoke all on schema leasehold from public;
revoke execute on all functions in schema leasehold from public;
do $$
declare
    v_role text;
begin
    foreach v_role in array array['leasehold_worker', 'leasehold_producer', 'leasehold_tenant'] loop
        -- Looked up first: without the right to create roles, an existing one is refused like a new one.
        continue when exists (select from pg_roles where rolname = v_role);
        begin
            execute format('create role %I', v_role);
        exception
            when duplicate_object or unique_violation then null;  -- somebody else did, in this moment
            when insufficient_privilege then
                raise warning 'may not create role %: create it and run leasehold migrate again', v_role;
                return;
        end;
    end loop;

    grant usage on schema leasehold to leasehold_worker, leasehold_producer, leasehold_tenant;
    grant select on leasehold.jobs, leasehold.job_attempts, leasehold.job_logs, leasehold.queue_stats, leasehold.limits, leasehold.schedules, leasehold.usage
        to leasehold_worker, leasehold_producer;
    grant select, insert on leasehold.new_jobs to leasehold_worker, leasehold_producer, leasehold_tenant;
    grant select on leasehold.tenant_quotas to leasehold_worker;
    grant select on leasehold.my_jobs, leasehold.my_job_attempts, leasehold.my_job_logs, leasehold.my_schedules, leasehold.my_queue_stats, leasehold.my_limits, leasehold.my_quotas,
        leasehold.my_modules, leasehold.my_usage to leasehold_tenant;
    grant execute on all functions in schema leasehold to leasehold_worker;
    revoke execute on function leasehold.move_to_cancelled, leasehold.give_back, leasehold.wake, leasehold.check_enqueue, leasehold.make_gates,
        leasehold.pass_gates, leasehold.leave_gates, leasehold.open_gates, leasehold.wait_at_gates, leasehold.begin_sharing, leasehold.after_end,
        leasehold.conclude, leasehold.stop_waiting, leasehold.tell, leasehold.expire,
        leasehold.take_unique_key, leasehold.meet_unique_job, leasehold.wait_for, leasehold.gate_code,
        leasehold.check_cron, leasehold.find_schedule, leasehold.enqueue_scheduled,
        leasehold.find_tenant, leasehold.no_tenant, leasehold.check_job, leasehold.check_upload, leasehold.check_grants, leasehold.take_quota, leasehold.collect_returns,
        leasehold.fill_slots, leasehold.create_tenant, leasehold.set_quotas, leasehold.grant_tenant, leasehold.revoke_tenant, leasehold.remove_tenant, leasehold.count_jobs,
        leasehold.fence
        from leasehold_worker;
    grant select on leasehold.secret_names, leasehold.tenants, leasehold.modules, leasehold.module_versions, leasehold.module_bytes, leasehold.workers, leasehold.schema_version
        to leasehold_worker;
    grant execute on function
        leasehold.enqueue(text, jsonb, text, text, int, timestamptz, int, interval, interval, int, text, int, text, text, interval, text,
                          timestamptz, bigint[], bigint, text, bigint, float8, interval, float8, boolean),
        leasehold.enqueue(text, text, text, text, int, timestamptz, int, interval, interval, int, text, int, text, text, interval, text,
                          timestamptz, bigint[], bigint, text, bigint, float8, interval, float8, boolean),
        leasehold.enqueue(text, bytea, text, text, int, timestamptz, int, interval, interval, int, text, int, text, text, interval, text,
                          timestamptz, bigint[], bigint, text, bigint, float8, interval, float8, boolean),
        leasehold.enqueue_bytes, leasehold.enqueue_many, leasehold.new_group, leasehold.cancel,
        leasehold.redrive, leasehold.redrive_many, leasehold.wait, leasehold.result, leasehold.explain, leasehold.as_json, leasehold.log_rows, leasehold.log_text,
        leasehold.schedule(text, text, text, jsonb, text, text, text, int, int, interval, interval, int, text, int, interval, text, boolean),
        leasehold.schedule(text, text, text, text, text, text, text, int, int, interval, interval, int, text, int, interval, text, boolean),
        leasehold.schedule(text, text, text, bytea, text, text, text, int, int, interval, interval, int, text, int, interval, text, boolean),
        leasehold.schedule_bytes, leasehold.unschedule, leasehold.pause_schedule, leasehold.resume_schedule, leasehold.fire_schedule,
        leasehold.schedule_is_held
        to leasehold_producer, leasehold_tenant;
    grant execute on function leasehold.my_tenants, leasehold.my_tenant_names, leasehold.sealed, leasehold.quota, leasehold.push_module, leasehold.activate_module,
        leasehold.remove_module to leasehold_tenant;
end $$;
