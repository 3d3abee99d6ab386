-- What the migrations make, written by a test of `store`. Set UPDATE_SCHEMA=1 to write it again.
table api_tokens
    id uuid not null
    hash bytea not null
    name text not null
    scopes text[] not null
    expires_at timestamp with time zone
    revoked_at timestamp with time zone
    last_used_at timestamp with time zone
    created_by text not null
    created_at timestamp with time zone not null default compute_now()
    constraint api_tokens_hash_check CHECK ((octet_length(hash) = 32))
    constraint api_tokens_pkey PRIMARY KEY (id)
    constraint api_tokens_times_check CHECK ((isfinite(expires_at) AND isfinite(revoked_at) AND isfinite(last_used_at) AND isfinite(created_at))) NOT VALID
table attestation_uses
    kind text not null
    subject text not null
    node_id uuid not null
    first_used timestamp with time zone not null default compute_now()
    last_used timestamp with time zone not null default compute_now()
    constraint attestation_uses_node_id_fkey FOREIGN KEY (node_id) REFERENCES nodes(id) ON DELETE CASCADE
    constraint attestation_uses_pkey PRIMARY KEY (kind, subject)
    constraint attestation_uses_times_check CHECK ((isfinite(first_used) AND isfinite(last_used))) NOT VALID
    CREATE INDEX attestation_uses_by_node ON attestation_uses USING btree (node_id)
table audit
    id uuid not null
    seq bigint not null identity
    at timestamp with time zone not null default compute_now()
    actor text not null
    action text not null
    subject text not null
    detail jsonb not null default '{}'::jsonb
    constraint audit_pkey PRIMARY KEY (id)
    constraint audit_seq_key UNIQUE (seq)
    CREATE INDEX audit_by_actor ON audit USING btree (actor, seq DESC)
    CREATE INDEX audit_by_subject ON audit USING btree (subject, seq DESC)
    CREATE INDEX audit_ends_of_batches ON audit USING btree (((detail ->> 'batchId'::text))) WHERE (action = ANY (ARRAY['batches.done'::text, 'batches.expired'::text, 'batches.void'::text, 'batches.rejected'::text, 'batches.cancelled'::text]))
    CREATE TRIGGER audit_append_only BEFORE DELETE OR UPDATE OR TRUNCATE ON audit FOR EACH STATEMENT EXECUTE FUNCTION audit_is_append_only()
    CREATE TRIGGER audit_tail_follows AFTER INSERT ON audit FOR EACH ROW EXECUTE FUNCTION audit_joins_tail()
table audit_aside
    id bigint not null identity
    what text not null
    place bigint not null
    seq bigint
    body bytea not null
    signature bytea
    at timestamp with time zone not null default compute_now()
    constraint audit_aside_pkey PRIMARY KEY (id)
    constraint audit_aside_times_check CHECK (isfinite(at)) NOT VALID
    constraint audit_aside_what_check CHECK ((what = ANY (ARRAY['line'::text, 'checkpoint'::text, 'outside'::text])))
    CREATE INDEX audit_aside_by_seq ON audit_aside USING btree (seq) WHERE (seq IS NOT NULL)
    CREATE TRIGGER audit_aside_append_only BEFORE DELETE OR UPDATE OR TRUNCATE ON audit_aside FOR EACH STATEMENT EXECUTE FUNCTION audit_is_append_only()
table audit_chain
    pos bigint not null
    seq bigint not null
    link bytea not null
    constraint audit_chain_link_check CHECK ((octet_length(link) = 32))
    constraint audit_chain_pkey PRIMARY KEY (pos)
    constraint audit_chain_pos_check CHECK ((pos >= 0))
    constraint audit_chain_seq_fkey FOREIGN KEY (seq) REFERENCES audit(seq)
    constraint audit_chain_seq_key UNIQUE (seq)
    CREATE TRIGGER audit_chain_append_only BEFORE DELETE OR UPDATE OR TRUNCATE ON audit_chain FOR EACH STATEMENT EXECUTE FUNCTION audit_chain_is_kept()
table audit_checkpoints
    n bigint not null
    rows bigint not null
    body bytea not null
    signature bytea not null
    at timestamp with time zone not null default compute_now()
    constraint audit_checkpoints_n_check CHECK ((n >= 0))
    constraint audit_checkpoints_pkey PRIMARY KEY (n)
    constraint audit_checkpoints_times_check CHECK (isfinite(at)) NOT VALID
    CREATE TRIGGER audit_checkpoints_append_only BEFORE DELETE OR UPDATE OR TRUNCATE ON audit_checkpoints FOR EACH STATEMENT EXECUTE FUNCTION audit_chain_is_kept()
table audit_keys
    key bytea not null
    vouch bytea not null
    at timestamp with time zone not null default compute_now()
    constraint audit_keys_key_check CHECK ((octet_length(key) = 32))
    constraint audit_keys_pkey PRIMARY KEY (key)
    constraint audit_keys_times_check CHECK (isfinite(at)) NOT VALID
table audit_tail
    seq bigint not null
    constraint audit_tail_pkey PRIMARY KEY (seq)
table batch_asks
    origin text not null
    name text not null
    code text not null
    message text not null
    waits boolean not null
    commit text
    place text
    looked text not null
    since timestamp with time zone not null default compute_now()
    constraint batch_asks_origin_check CHECK ((origin = ANY (ARRAY['document'::text, 'proposal'::text])))
    constraint batch_asks_pkey PRIMARY KEY (origin, name)
    constraint batch_asks_times_check CHECK (isfinite(since)) NOT VALID
table batch_leaves
    batch_id uuid not null
    index integer not null
    node_id uuid not null
    node text not null
    leaf bytea
    payload text not null
    state text not null default 'waiting'::text
    reason text
    command_id uuid
    attempt integer not null default 0
    began_at timestamp with time zone
    ended_at timestamp with time zone
    constraint batch_leaves_batch_id_fkey FOREIGN KEY (batch_id) REFERENCES batches(id) ON DELETE CASCADE
    constraint batch_leaves_pkey PRIMARY KEY (batch_id, index)
    constraint batch_leaves_state_check CHECK ((state = ANY (ARRAY['waiting'::text, 'sent'::text, 'succeeded'::text, 'failed'::text, 'left'::text])))
    constraint batch_leaves_times_check CHECK ((isfinite(began_at) AND isfinite(ended_at))) NOT VALID
    CREATE INDEX batch_leaves_by_command ON batch_leaves USING btree (command_id) WHERE (command_id IS NOT NULL)
    CREATE INDEX batch_leaves_by_node ON batch_leaves USING btree (node_id)
table batches
    id uuid not null
    name text not null
    origin text not null
    state text not null
    reason text
    message text
    quorum boolean not null
    kind text not null
    doc text not null
    document bytea not null
    place text
    why text not null
    tier text
    plan_commit text
    plan_tree text
    header bytea
    digest bytea
    trust_epoch bigint
    proposer text
    evidence bytea
    created_by text not null
    leaf_count integer not null
    not_before timestamp with time zone not null
    expires timestamp with time zone not null
    max_in_flight integer not null
    max_failures integer not null
    spread text
    created_at timestamp with time zone not null default compute_now()
    resolved_at timestamp with time zone not null default compute_now()
    decided_at timestamp with time zone
    ended_at timestamp with time zone
    closed_at timestamp with time zone
    closed_by text
    closed_note text
    mark bytea
    constraint batches_check CHECK (((header IS NULL) = (digest IS NULL)))
    constraint batches_digest_check CHECK ((octet_length(digest) = 32))
    constraint batches_document_check CHECK ((octet_length(document) = 32))
    constraint batches_ended CHECK (((ended_at IS NOT NULL) = (state = ANY (ARRAY['done'::text, 'expired'::text, 'void'::text, 'rejected'::text, 'cancelled'::text]))))
    constraint batches_max_failures_check CHECK ((max_failures >= 0))
    constraint batches_max_in_flight_check CHECK ((max_in_flight > 0))
    constraint batches_name_key UNIQUE (name)
    constraint batches_origin_check CHECK ((origin = ANY (ARRAY['document'::text, 'proposal'::text, 'api'::text, 'breakglass'::text])))
    constraint batches_pkey PRIMARY KEY (id)
    constraint batches_state_check CHECK ((state = ANY (ARRAY['proposed'::text, 'approved'::text, 'dispatching'::text, 'done'::text, 'expired'::text, 'void'::text, 'rejected'::text, 'cancelled'::text])))
    constraint batches_times_check CHECK ((isfinite(not_before) AND isfinite(expires) AND isfinite(created_at) AND isfinite(resolved_at) AND isfinite(decided_at) AND isfinite(ended_at) AND isfinite(closed_at))) NOT VALID
    CREATE INDEX batches_by_creation ON batches USING btree (created_at)
    CREATE INDEX batches_open ON batches USING btree (name) WHERE (ended_at IS NULL)
    CREATE INDEX batches_to_review ON batches USING btree (created_at) WHERE ((origin = 'breakglass'::text) AND (closed_at IS NULL))
table blobs
    digest bytea not null
    bytes bytea not null
    constraint blobs_digest_check CHECK ((octet_length(digest) = 32))
    constraint blobs_pkey PRIMARY KEY (digest)
table command_updates
    id bigint not null identity
    node_id uuid not null
    command_id uuid not null
    epoch bigint not null
    payload bytea not null
    signature bytea not null
    received_at timestamp with time zone not null default compute_now()
    constraint command_updates_node_id_command_id_epoch_key UNIQUE (node_id, command_id, epoch)
    constraint command_updates_pkey PRIMARY KEY (id)
    constraint command_updates_times_check CHECK (isfinite(received_at)) NOT VALID
table commands fillfactor=70
    id uuid not null
    node_id uuid not null
    seq bigint not null
    kind text not null
    retry_safe boolean not null
    lane text not null
    payload text not null
    idempotency_key text not null
    state text not null default 'pending'::text
    reason text
    message text
    not_before timestamp with time zone default compute_now()
    not_after timestamp with time zone not null
    min_generation bigint
    batch_id uuid
    body bytea not null
    signature bytea
    signed_at timestamp with time zone
    epoch bigint
    boot_id uuid
    journal_id uuid
    busy_count integer not null default 0
    result text
    evidence bytea
    evidence_signature bytea
    evidence_key bytea
    late_state text
    late_reason text
    late_at timestamp with time zone
    cancel_requested_at timestamp with time zone
    owner text
    created_by text not null
    created_at timestamp with time zone not null default compute_now()
    dispatched_at timestamp with time zone
    acked_at timestamp with time zone
    started_at timestamp with time zone
    settled_at timestamp with time zone
    busy_reason text
    approval bytea
    mark bytea
    withheld text
    for_journal uuid
    constraint commands_check CHECK (((signature IS NULL) = (signed_at IS NULL)))
    constraint commands_check1 CHECK ((((evidence IS NULL) = (evidence_signature IS NULL)) AND ((evidence IS NULL) = (evidence_key IS NULL))))
    constraint commands_lane_check CHECK ((lane = ANY (ARRAY['control'::text, 'provision'::text, 'bulk'::text])))
    constraint commands_node_id_idempotency_key_key UNIQUE (node_id, idempotency_key)
    constraint commands_node_id_seq_key UNIQUE (node_id, seq)
    constraint commands_pkey PRIMARY KEY (id)
    constraint commands_settled CHECK (((settled_at IS NOT NULL) = (state = ANY (ARRAY['succeeded'::text, 'failed'::text, 'rejected'::text, 'expired'::text, 'cancelled'::text]))))
    constraint commands_state_check CHECK ((state = ANY (ARRAY['pending'::text, 'dispatched'::text, 'acked'::text, 'running'::text, 'succeeded'::text, 'failed'::text, 'rejected'::text, 'expired'::text, 'cancelled'::text])))
    constraint commands_times_check CHECK ((isfinite(not_before) AND isfinite(not_after) AND isfinite(signed_at) AND isfinite(late_at) AND isfinite(cancel_requested_at) AND isfinite(created_at) AND isfinite(dispatched_at) AND isfinite(acked_at) AND isfinite(started_at) AND isfinite(settled_at))) NOT VALID
    CREATE INDEX commands_by_deadline ON commands USING btree (not_after) WHERE (settled_at IS NULL)
    CREATE INDEX commands_by_end ON commands USING btree (settled_at) WHERE (settled_at IS NOT NULL)
    CREATE INDEX commands_in_flight ON commands USING btree (node_id, seq) WHERE (state = ANY (ARRAY['dispatched'::text, 'acked'::text, 'running'::text]))
    CREATE INDEX commands_in_journals ON commands USING btree (node_id, lane, seq) WHERE ((NOT retry_safe) AND (acked_at IS NOT NULL))
    CREATE INDEX commands_open ON commands USING btree (node_id, seq) WHERE (state = ANY (ARRAY['pending'::text, 'dispatched'::text, 'acked'::text, 'running'::text]))
    CREATE INDEX commands_pending ON commands USING btree (node_id, lane, seq) WHERE (state = 'pending'::text)
    CREATE INDEX commands_taken_back ON commands USING btree (id) WHERE ((state = 'pending'::text) AND (cancel_requested_at IS NOT NULL))
    CREATE INDEX commands_to_cancel ON commands USING btree (node_id) WHERE ((state = ANY (ARRAY['dispatched'::text, 'acked'::text, 'running'::text])) AND (cancel_requested_at IS NOT NULL))
    CREATE TRIGGER commands_move BEFORE UPDATE OF state ON commands FOR EACH ROW EXECUTE FUNCTION commands_move()
table control_plane
    only_one boolean not null default true
    fleet_id uuid not null
    trust_domain text
    dev boolean not null
    created_at timestamp with time zone not null default compute_now()
    constraint control_plane_only_one_check CHECK (only_one)
    constraint control_plane_pkey PRIMARY KEY (only_one)
    constraint control_plane_times_check CHECK (isfinite(created_at)) NOT VALID
table documents
    digest bytea not null
    doc text not null
    constraint documents_digest_check CHECK ((octet_length(digest) = 32))
    constraint documents_pkey PRIMARY KEY (digest)
table holds
    id uuid not null
    subject text not null
    gate text not null
    source text not null
    owner text not null
    reason text not null
    place text
    until timestamp with time zone
    created_at timestamp with time zone not null default compute_now()
    constraint holds_pkey PRIMARY KEY (id)
    constraint holds_source_check CHECK ((source = ANY (ARRAY['git'::text, 'api'::text, 'health'::text])))
    constraint holds_subject_gate_source_key UNIQUE (subject, gate, source)
    constraint holds_times_check CHECK ((isfinite(until) AND isfinite(created_at))) NOT VALID
table idempotency
    identity text not null
    key text not null
    method text not null
    request_hash bytea not null
    response text
    created_at timestamp with time zone not null default compute_now()
    constraint idempotency_pkey PRIMARY KEY (identity, key)
    constraint idempotency_request_hash_check CHECK ((octet_length(request_hash) = 32))
    constraint idempotency_times_check CHECK (isfinite(created_at)) NOT VALID
    CREATE INDEX idempotency_by_age ON idempotency USING btree (created_at)
table join_tokens
    id uuid not null
    hash bytea not null
    pool text not null
    uses_max integer not null
    uses_left integer not null
    expires_at timestamp with time zone not null
    revoked_at timestamp with time zone
    expect jsonb not null default '{}'::jsonb
    created_by text not null
    created_at timestamp with time zone not null default compute_now()
    reclaim boolean not null default false
    kinds text[]
    constraint join_tokens_check CHECK (((uses_left >= 0) AND (uses_left <= uses_max)))
    constraint join_tokens_hash_check CHECK ((octet_length(hash) = 32))
    constraint join_tokens_pkey PRIMARY KEY (id)
    constraint join_tokens_times_check CHECK ((isfinite(expires_at) AND isfinite(revoked_at) AND isfinite(created_at))) NOT VALID
    constraint join_tokens_uses_max_check CHECK ((uses_max > 0))
table joins
    id uuid not null
    state text not null
    reason text not null
    message text not null
    pool text
    token_id uuid
    csr_hash bytea not null
    hardware_key bytea
    claims jsonb not null
    node_id uuid
    conflict_with uuid
    peer text
    attempts integer not null default 1
    created_at timestamp with time zone not null default compute_now()
    updated_at timestamp with time zone not null default compute_now()
    kind text not null default 'join'::text
    approved_at timestamp with time zone
    approved_by text
    approved_as uuid
    attested text[] not null default '{}'::text[]
    constraint joins_approved_as_fkey FOREIGN KEY (approved_as) REFERENCES nodes(id) ON DELETE CASCADE
    constraint joins_conflict_with_fkey FOREIGN KEY (conflict_with) REFERENCES nodes(id) ON DELETE SET NULL
    constraint joins_csr_hash_check CHECK ((octet_length(csr_hash) = 32))
    constraint joins_csr_hash_key UNIQUE (csr_hash)
    constraint joins_hardware_key_check CHECK ((octet_length(hardware_key) = 32))
    constraint joins_kind_check CHECK ((kind = ANY (ARRAY['join'::text, 'renewal'::text])))
    constraint joins_node_id_fkey FOREIGN KEY (node_id) REFERENCES nodes(id) ON DELETE SET NULL
    constraint joins_pkey PRIMARY KEY (id)
    constraint joins_state_check CHECK ((state = ANY (ARRAY['waiting'::text, 'held'::text, 'refused'::text, 'admitted'::text])))
    constraint joins_times_check CHECK ((isfinite(created_at) AND isfinite(updated_at) AND isfinite(approved_at))) NOT VALID
    CREATE INDEX joins_by_state ON joins USING btree (state, updated_at DESC)
table key_holders
    name text not null
    is_gateway boolean not null
    revision bigint not null
    seen_at timestamp with time zone not null default compute_now()
    expires_at timestamp with time zone not null
    ended_by text
    clock_off bigint not null default 0
    constraint key_holders_pkey PRIMARY KEY (name)
    constraint key_holders_revision_check CHECK ((revision >= 0))
    constraint key_holders_times_check CHECK ((isfinite(seen_at) AND isfinite(expires_at))) NOT VALID
table leases fillfactor=50
    name text not null
    epoch bigint not null
    holder uuid
    expires_at timestamp with time zone not null
    constraint leases_name_epoch_key UNIQUE (name, epoch)
    constraint leases_pkey PRIMARY KEY (name)
    constraint leases_times_check CHECK (isfinite(expires_at)) NOT VALID
    CREATE INDEX leases_by_holder ON leases USING btree (holder)
table manifest_parts
    digest bytea not null
    body bytea not null
    constraint manifest_parts_digest_check CHECK ((octet_length(digest) = 32))
    constraint manifest_parts_pkey PRIMARY KEY (digest)
table manifest_targets
    target bytea not null
    part bytea not null
    manifest uuid not null
    constraint manifest_targets_manifest_fkey FOREIGN KEY (manifest) REFERENCES manifests(revision)
    constraint manifest_targets_part_fkey FOREIGN KEY (part) REFERENCES manifest_parts(digest)
    constraint manifest_targets_pkey PRIMARY KEY (target, part)
    constraint manifest_targets_target_check CHECK ((octet_length(target) = 32))
table manifests
    revision uuid not null
    source text not null
    body bytea not null
    signature bytea not null
    key bytea not null
    renames boolean not null
    written_at timestamp with time zone not null default compute_now()
    constraint manifests_key_check CHECK ((octet_length(key) = 32))
    constraint manifests_pkey PRIMARY KEY (revision)
    constraint manifests_revision_fkey FOREIGN KEY (revision) REFERENCES revisions(id)
    constraint manifests_times_check CHECK (isfinite(written_at)) NOT VALID
    CREATE INDEX manifests_by_key ON manifests USING btree (key)
    CREATE INDEX manifests_with_renames ON manifests USING btree (source) WHERE renames
table node_boots
    node_id uuid not null
    boot_id uuid not null
    boot_said timestamp with time zone
    boot_seen timestamp with time zone
    journal_id uuid not null
    journal_said timestamp with time zone
    journal_seen timestamp with time zone
    said_at timestamp with time zone not null
    binds boolean not null default false
    constraint node_boots_node_id_fkey FOREIGN KEY (node_id) REFERENCES nodes(id) ON DELETE CASCADE
    constraint node_boots_pkey PRIMARY KEY (node_id)
    constraint node_boots_times_check CHECK ((isfinite(boot_said) AND isfinite(boot_seen) AND isfinite(journal_said) AND isfinite(journal_seen) AND isfinite(said_at))) NOT VALID
table node_certs
    serial bytea not null
    node_id uuid not null
    public_key bytea not null
    identity_generation bigint not null
    not_before timestamp with time zone not null
    not_after timestamp with time zone not null
    issued_at timestamp with time zone not null default compute_now()
    revoked_at timestamp with time zone
    revoked_reason text
    allowed_kinds text[]
    chain bytea[]
    node_name text
    constraint node_certs_node_id_fkey FOREIGN KEY (node_id) REFERENCES nodes(id) ON DELETE CASCADE
    constraint node_certs_pkey PRIMARY KEY (serial)
    constraint node_certs_times_check CHECK ((isfinite(not_before) AND isfinite(not_after) AND isfinite(issued_at) AND isfinite(revoked_at))) NOT VALID
    CREATE INDEX node_certs_by_node ON node_certs USING btree (node_id, not_after DESC)
    CREATE INDEX node_certs_by_revocation ON node_certs USING btree (revoked_at) WHERE (revoked_at IS NOT NULL)
table node_drift
    node_id uuid not null
    path text not null
    mode text not null
    kind text not null
    cause text not null
    observed text
    observed_digest bytea
    observed_bytes bigint
    desired text
    first_seen timestamp with time zone not null
    last_seen timestamp with time zone not null
    corrected boolean not null
    times bigint not null
    constraint node_drift_cause_check CHECK ((cause = ANY (ARRAY['while-running'::text, 'while-stopped'::text, 'after-boot'::text, 'unknown'::text])))
    constraint node_drift_kind_check CHECK ((kind = ANY (ARRAY['changed'::text, 'removed'::text, 'metadata'::text, 'value'::text])))
    constraint node_drift_mode_check CHECK ((mode = ANY (ARRAY['enforce'::text, 'warn'::text, 'adopt'::text])))
    constraint node_drift_node_id_fkey FOREIGN KEY (node_id) REFERENCES nodes(id) ON DELETE CASCADE
    constraint node_drift_observed_digest_check CHECK ((octet_length(observed_digest) = 32))
    constraint node_drift_pkey PRIMARY KEY (node_id, path)
    constraint node_drift_times_check CHECK ((isfinite(first_seen) AND isfinite(last_seen))) NOT VALID
table node_holds
    id uuid not null
    node_id uuid not null
    source text not null
    owner text not null
    reason text not null
    place text
    until timestamp with time zone
    created_at timestamp with time zone not null default compute_now()
    constraint node_holds_node_id_fkey FOREIGN KEY (node_id) REFERENCES nodes(id) ON DELETE CASCADE
    constraint node_holds_node_id_source_key UNIQUE (node_id, source)
    constraint node_holds_pkey PRIMARY KEY (id)
    constraint node_holds_source_check CHECK ((source = ANY (ARRAY['git'::text, 'api'::text, 'health'::text])))
    constraint node_holds_times_check CHECK ((isfinite(until) AND isfinite(created_at))) NOT VALID
    CREATE INDEX node_holds_by_end ON node_holds USING btree (until) WHERE (until IS NOT NULL)
table node_identities
    node_id uuid not null
    payload bytea not null
    signature bytea not null
    received_at timestamp with time zone not null default compute_now()
    constraint node_identities_node_id_fkey FOREIGN KEY (node_id) REFERENCES nodes(id) ON DELETE CASCADE
    constraint node_identities_pkey PRIMARY KEY (node_id)
    constraint node_identities_times_check CHECK (isfinite(received_at)) NOT VALID
table node_inventory
    node_id uuid not null
    section text not null
    digest bytea not null
    doc text not null
    observed_at timestamp with time zone not null default compute_now()
    constraint node_inventory_digest_check CHECK ((octet_length(digest) = 32))
    constraint node_inventory_node_id_fkey FOREIGN KEY (node_id) REFERENCES nodes(id) ON DELETE CASCADE
    constraint node_inventory_pkey PRIMARY KEY (node_id, section)
    constraint node_inventory_times_check CHECK (isfinite(observed_at)) NOT VALID
table node_report_marks
    node_id uuid not null
    kind text not null
    journal_id uuid not null
    seq bigint not null
    constraint node_report_marks_kind_check CHECK ((kind = ANY (ARRAY['status'::text, 'inventory'::text])))
    constraint node_report_marks_node_id_fkey FOREIGN KEY (node_id) REFERENCES nodes(id) ON DELETE CASCADE
    constraint node_report_marks_pkey PRIMARY KEY (node_id, kind)
table node_reports
    id bigint not null identity
    node_id uuid not null
    kind text not null
    seq bigint not null
    epoch bigint not null
    payload bytea not null
    signature bytea not null
    received_at timestamp with time zone not null default compute_now()
    constraint node_reports_kind_check CHECK ((kind = ANY (ARRAY['status'::text, 'inventory'::text])))
    constraint node_reports_node_id_fkey FOREIGN KEY (node_id) REFERENCES nodes(id) ON DELETE CASCADE
    constraint node_reports_node_id_kind_epoch_seq_key UNIQUE (node_id, kind, epoch, seq)
    constraint node_reports_pkey PRIMARY KEY (id)
    constraint node_reports_times_check CHECK (isfinite(received_at)) NOT VALID
table node_sections
    node_id uuid not null
    section text not null
    digest bytea not null
    state text not null
    reason text not null default ''::text
    generation bigint not null
    since timestamp with time zone not null default compute_now()
    constraint node_sections_digest_check CHECK ((octet_length(digest) = 32))
    constraint node_sections_node_id_fkey FOREIGN KEY (node_id) REFERENCES nodes(id) ON DELETE CASCADE
    constraint node_sections_pkey PRIMARY KEY (node_id, section)
    constraint node_sections_state_check CHECK ((state = ANY (ARRAY['converged'::text, 'failed'::text])))
    constraint node_sections_times_check CHECK (isfinite(since)) NOT VALID
table nodes fillfactor=70
    id uuid not null
    name text not null
    site text
    pool text
    owner_tenant text
    role text not null
    trust text not null
    adapter text not null default 'bcd/v1'::text
    labels jsonb not null default '{}'::jsonb
    declared boolean not null default false
    hardware_key bytea
    hardware_key_trusted boolean not null default false
    provision_state text not null
    failed_from text
    maintenance boolean not null default false
    maintenance_reason text
    cordoned boolean not null default false
    power text not null default 'unknown'::text
    connectivity text not null default 'disconnected'::text
    connectivity_since timestamp with time zone not null default compute_now()
    conditions jsonb not null default '[]'::jsonb
    no_schedule_reasons text[] not null default '{}'::text[]
    inventory_wanted text[] not null default '{}'::text[]
    generation bigint not null default 0
    observed_generation bigint not null default 0
    applied_generation bigint not null default 0
    identity_generation bigint not null default 1
    version bigint not null default 1
    next_cmd_seq bigint not null default 1
    shard smallint not null
    spec bytea
    spec_digest bytea
    spec_signature bytea
    spec_signed_at timestamp with time zone
    spec_changed_at timestamp with time zone
    spec_from_digest bytea
    spec_from_overlay text
    target_digest bytea
    target_overlay text not null default '{}'::text
    assigned_digest bytea
    assigned_overlay text not null default '{}'::text
    created_at timestamp with time zone not null default compute_now()
    updated_at timestamp with time zone not null default compute_now()
    adopted_at timestamp with time zone
    assigned_name text
    spec_effect text
    trust_version bigint not null default 0
    acceptance_attempt bigint not null default 1
    placement bytea
    policy_epoch bigint
    policy_digest text
    policy_refused text
    constraint nodes_assigned_digest_fkey FOREIGN KEY (assigned_digest) REFERENCES targets(digest)
    constraint nodes_check CHECK (((spec IS NULL) = (spec_digest IS NULL)))
    constraint nodes_check1 CHECK (((spec IS NULL) = (generation = 0)))
    constraint nodes_connectivity_check CHECK ((connectivity = ANY (ARRAY['connected'::text, 'disconnected'::text, 'unreachable'::text, 'lost'::text])))
    constraint nodes_hardware_key_check CHECK ((octet_length(hardware_key) = 32))
    constraint nodes_name_key UNIQUE (name)
    constraint nodes_pkey PRIMARY KEY (id)
    constraint nodes_policy_epoch_check CHECK ((policy_epoch >= 0))
    constraint nodes_power_check CHECK ((power = ANY (ARRAY['on'::text, 'off'::text, 'unknown'::text])))
    constraint nodes_role_check CHECK ((role = ANY (ARRAY['host'::text, 'dedicated'::text, 'site'::text, 'unassigned'::text])))
    constraint nodes_shard_check CHECK (((shard >= 0) AND (shard <= 255)))
    constraint nodes_spec_digest_check CHECK ((octet_length(spec_digest) = 32))
    constraint nodes_spec_effect_check CHECK ((spec_effect = ANY (ARRAY['none'::text, 'live'::text, 'service-restart'::text, 'drain'::text, 'reboot'::text, 'reimage'::text, 'wipe'::text])))
    constraint nodes_spec_from_digest_fkey FOREIGN KEY (spec_from_digest) REFERENCES targets(digest)
    constraint nodes_target_digest_fkey FOREIGN KEY (target_digest) REFERENCES targets(digest)
    constraint nodes_times_check CHECK ((isfinite(connectivity_since) AND isfinite(spec_signed_at) AND isfinite(spec_changed_at) AND isfinite(created_at) AND isfinite(updated_at) AND isfinite(adopted_at))) NOT VALID
    constraint nodes_trust_check CHECK ((trust = ANY (ARRAY['platform'::text, 'tenant-owned'::text, 'tenant-controlled'::text])))
    CREATE INDEX nodes_asked ON nodes USING btree (id) WHERE (inventory_wanted <> '{}'::text[])
    CREATE INDEX nodes_by_pool ON nodes USING btree (pool, name)
    CREATE INDEX nodes_by_shard ON nodes USING btree (shard)
    CREATE INDEX nodes_by_signature ON nodes USING btree (spec_signed_at) WHERE (spec_signed_at IS NOT NULL)
    CREATE UNIQUE INDEX nodes_hardware_key ON nodes USING btree (hardware_key) WHERE (hardware_key_trusted AND (provision_state <> 'retired'::text))
table objects
    kind text not null
    name text not null
    digest bytea not null
    file text not null
    line integer not null
    state text not null
    revision uuid not null
    constraint objects_digest_fkey FOREIGN KEY (digest) REFERENCES documents(digest)
    constraint objects_pkey PRIMARY KEY (kind, name)
    constraint objects_revision_fkey FOREIGN KEY (revision) REFERENCES revisions(id)
    constraint objects_state_check CHECK ((state = ANY (ARRAY['declared'::text, 'retained'::text, 'removed'::text])))
table outbox
    id bigint not null identity
    xid xid8 not null default pg_current_xact_id()
    kind text not null
    subject text not null
    doc text not null
    at timestamp with time zone not null default compute_now()
    life integer not null default outbox_life()
    constraint outbox_pkey PRIMARY KEY (life, xid, id)
    constraint outbox_times_check CHECK (isfinite(at)) NOT VALID
    CREATE INDEX outbox_by_age ON outbox USING btree (at)
table outbox_lives
    life integer not null
    server text
    began_at timestamp with time zone not null default compute_now()
    constraint outbox_lives_pkey PRIMARY KEY (life)
    constraint outbox_lives_times_check CHECK (isfinite(began_at)) NOT VALID
table outcomes
    kind text not null
    key text not null
    state text not null
    reason text not null default ''::text
    message text not null default ''::text
    place text not null
    since timestamp with time zone not null default compute_now()
    constraint outcomes_lengths_check CHECK (((length(reason) <= 200) AND (length(message) <= 4000) AND (length(place) <= 400)))
    constraint outcomes_pkey PRIMARY KEY (kind, key)
    constraint outcomes_state_check CHECK ((state = ANY (ARRAY['done'::text, 'again'::text, 'wait'::text, 'error'::text])))
    constraint outcomes_times_check CHECK (isfinite(since)) NOT VALID
    CREATE INDEX outcomes_by_key ON outcomes USING btree (key)
    CREATE INDEX outcomes_open ON outcomes USING btree (state, since) WHERE (state <> 'done'::text)
table plan_commits
    commit text not null
    raw bytea not null
    kept_at timestamp with time zone not null default compute_now()
    constraint plan_commits_pkey PRIMARY KEY (commit)
    constraint plan_commits_times_check CHECK (isfinite(kept_at)) NOT VALID
table plans
    id uuid not null
    source text not null
    commit text
    base_commit text
    digest bytea not null
    state text not null
    doc text not null
    created_at timestamp with time zone not null default compute_now()
    shown_by text not null default ''::text
    constraint plans_digest_check CHECK ((octet_length(digest) = 32))
    constraint plans_pkey PRIMARY KEY (id)
    constraint plans_state_check CHECK ((state = ANY (ARRAY['open'::text, 'applied'::text, 'superseded'::text, 'shown'::text])))
    constraint plans_times_check CHECK (isfinite(created_at)) NOT VALID
    CREATE INDEX plans_by_commit ON plans USING btree (source, commit)
    CREATE INDEX plans_by_creation ON plans USING btree (created_at DESC)
    CREATE INDEX plans_by_digest ON plans USING btree (digest, created_at DESC)
    CREATE INDEX plans_shown ON plans USING btree (shown_by, created_at DESC) WHERE (state = 'shown'::text)
table pools
    name text not null
    site text not null
    class text not null
    owner_tenant text
    policy jsonb not null default '{}'::jsonb
    target_digest bytea
    profile_targets jsonb not null default '{}'::jsonb
    revision uuid
    updated_at timestamp with time zone not null default compute_now()
    constraint pools_pkey PRIMARY KEY (name)
    constraint pools_revision_fkey FOREIGN KEY (revision) REFERENCES revisions(id)
    constraint pools_target_digest_fkey FOREIGN KEY (target_digest) REFERENCES targets(digest)
    constraint pools_times_check CHECK (isfinite(updated_at)) NOT VALID
table proposals
    batch_id uuid not null
    text text not null
    mark bytea not null
    constraint proposals_batch_id_fkey FOREIGN KEY (batch_id) REFERENCES batches(id) ON DELETE CASCADE
    constraint proposals_pkey PRIMARY KEY (batch_id)
table quarantined
    source text not null
    commit text not null
    owner text not null
    reason text not null
    placed_by text not null
    created_at timestamp with time zone not null default compute_now()
    constraint quarantined_pkey PRIMARY KEY (source, commit)
    constraint quarantined_source_fkey FOREIGN KEY (source) REFERENCES sources(name)
    constraint quarantined_times_check CHECK (isfinite(created_at)) NOT VALID
table renewals
    challenge bytea not null
    node_id uuid not null
    created_at timestamp with time zone not null default compute_now()
    constraint renewals_node_id_fkey FOREIGN KEY (node_id) REFERENCES nodes(id) ON DELETE CASCADE
    constraint renewals_pkey PRIMARY KEY (challenge)
    constraint renewals_times_check CHECK (isfinite(created_at)) NOT VALID
table revision_files
    id bigint not null identity
    source text not null
    path text not null
    from_seq bigint not null
    until_seq bigint
    what text not null
    digest bytea
    note text not null default ''::text
    constraint revision_files_check CHECK (((what = 'file'::text) = (digest IS NOT NULL)))
    constraint revision_files_check1 CHECK ((until_seq > from_seq))
    constraint revision_files_digest_fkey FOREIGN KEY (digest) REFERENCES blobs(digest)
    constraint revision_files_from_seq_fkey FOREIGN KEY (from_seq) REFERENCES revisions(seq)
    constraint revision_files_pkey PRIMARY KEY (id)
    constraint revision_files_source_fkey FOREIGN KEY (source) REFERENCES sources(name)
    constraint revision_files_until_seq_fkey FOREIGN KEY (until_seq) REFERENCES revisions(seq)
    constraint revision_files_what_check CHECK ((what = ANY (ARRAY['file'::text, 'symlink'::text, 'submodule'::text, 'too-large'::text, 'unreadable'::text, 'bad-path'::text])))
    CREATE INDEX revision_files_by_end ON revision_files USING btree (until_seq) WHERE (until_seq IS NOT NULL)
    CREATE INDEX revision_files_by_start ON revision_files USING btree (from_seq)
    CREATE INDEX revision_files_in_force ON revision_files USING btree (source) WHERE (until_seq IS NULL)
table revision_objects
    revision uuid not null
    kind text not null
    name text not null
    digest bytea not null
    file text not null
    line integer not null
    state text not null
    constraint revision_objects_digest_fkey FOREIGN KEY (digest) REFERENCES documents(digest)
    constraint revision_objects_pkey PRIMARY KEY (revision, kind, name)
    constraint revision_objects_revision_fkey FOREIGN KEY (revision) REFERENCES revisions(id)
    constraint revision_objects_state_check CHECK ((state = ANY (ARRAY['declared'::text, 'retained'::text, 'removed'::text, 'moved'::text])))
    CREATE INDEX revision_objects_by_object ON revision_objects USING btree (kind, name)
table revisions
    id uuid not null
    seq bigint not null identity
    source text not null
    commit text not null
    tree text not null
    branch text not null
    author text not null
    committer text not null
    subject text not null
    committed_at timestamp with time zone not null
    applied_at timestamp with time zone not null default compute_now()
    applied_by text not null
    digest bytea not null
    summary jsonb not null
    tree_digest bytea
    plan uuid
    constraint revisions_pkey PRIMARY KEY (id)
    constraint revisions_seq_key UNIQUE (seq)
    constraint revisions_source_fkey FOREIGN KEY (source) REFERENCES sources(name)
    constraint revisions_times_check CHECK ((isfinite(committed_at) AND isfinite(applied_at))) NOT VALID
    constraint revisions_tree_digest_check CHECK ((octet_length(tree_digest) = 32))
    CREATE INDEX revisions_by_commit ON revisions USING btree (source, commit, seq DESC)
table rollbacks
    id uuid not null
    seq bigint not null identity
    source text not null
    revision uuid not null
    from_commit text not null
    plan bytea
    owner text not null
    reason text not null
    requested_by text not null
    quarantined text[] not null default '{}'::text[]
    requested_at timestamp with time zone not null default compute_now()
    state text not null default 'requested'::text
    message text not null default ''::text
    ended_at timestamp with time zone
    constraint rollbacks_check CHECK (((state = 'requested'::text) = (ended_at IS NULL)))
    constraint rollbacks_pkey PRIMARY KEY (id)
    constraint rollbacks_plan_check CHECK ((octet_length(plan) = 32))
    constraint rollbacks_revision_fkey FOREIGN KEY (revision) REFERENCES revisions(id)
    constraint rollbacks_seq_key UNIQUE (seq)
    constraint rollbacks_source_fkey FOREIGN KEY (source) REFERENCES sources(name)
    constraint rollbacks_state_check CHECK ((state = ANY (ARRAY['requested'::text, 'done'::text, 'refused'::text, 'withdrawn'::text])))
    constraint rollbacks_times_check CHECK ((isfinite(requested_at) AND isfinite(ended_at))) NOT VALID
    CREATE UNIQUE INDEX rollbacks_one_waits ON rollbacks USING btree (source) WHERE (state = 'requested'::text)
table secret_uses
    node_id uuid not null
    name text not null
    constraint secret_uses_node_id_fkey FOREIGN KEY (node_id) REFERENCES nodes(id) ON DELETE CASCADE
    constraint secret_uses_pkey PRIMARY KEY (name, node_id)
    CREATE INDEX secret_uses_by_node ON secret_uses USING btree (node_id)
table secret_versions
    name text not null
    version bigint not null
    envelope bytea not null
    created_by text not null
    created_at timestamp with time zone not null default compute_now()
    constraint secret_versions_name_fkey FOREIGN KEY (name) REFERENCES secrets(name)
    constraint secret_versions_pkey PRIMARY KEY (name, version)
    constraint secret_versions_times_check CHECK (isfinite(created_at)) NOT VALID
    constraint secret_versions_version_check CHECK ((version > 0))
table secrets
    name text not null
    counter bigint not null
    constraint secrets_counter_check CHECK ((counter > 0))
    constraint secrets_pkey PRIMARY KEY (name)
table sessions fillfactor=50
    node_id uuid not null
    epoch bigint not null
    gateway_id uuid not null
    boot_id uuid not null
    journal_id uuid not null
    identity_generation bigint not null
    version text not null default ''::text
    described boolean not null default false
    connected_at timestamp with time zone not null default compute_now()
    disconnected_at timestamp with time zone
    last_seen timestamp with time zone not null default compute_now()
    commands boolean not null default false
    claims_void bigint not null default 0
    node_name text
    constraint sessions_node_id_fkey FOREIGN KEY (node_id) REFERENCES nodes(id) ON DELETE CASCADE
    constraint sessions_pkey PRIMARY KEY (node_id)
    constraint sessions_times_check CHECK ((isfinite(connected_at) AND isfinite(disconnected_at) AND isfinite(last_seen))) NOT VALID
table sources
    name text not null
    url text not null
    branch text not null
    path text not null default ''::text
    remote_commit text
    remote_at timestamp with time zone
    verified_commit text
    verified_at timestamp with time zone
    planned_commit text
    planned_at timestamp with time zone
    applied_commit text
    applied_at timestamp with time zone
    accepted_commit text
    state text not null
    reason text
    detail jsonb
    since timestamp with time zone not null default compute_now()
    checked_at timestamp with time zone
    rolled_back_from text
    constraint sources_pkey PRIMARY KEY (name)
    constraint sources_times_check CHECK ((isfinite(remote_at) AND isfinite(verified_at) AND isfinite(planned_at) AND isfinite(applied_at) AND isfinite(since) AND isfinite(checked_at))) NOT VALID
table statements
    digest text not null
    kind text not null
    subject text not null
    principal text not null
    commit text not null
    raw bytea not null
    first_seen_at timestamp with time zone not null default compute_now()
    key text not null default ''::text
    constraint statements_pkey PRIMARY KEY (digest, key)
    constraint statements_raw_check CHECK ((octet_length(raw) <= 16384))
    constraint statements_times_check CHECK (isfinite(first_seen_at)) NOT VALID
    CREATE INDEX statements_by_commit ON statements USING btree (commit)
    CREATE INDEX statements_by_kind ON statements USING btree (kind, first_seen_at)
    CREATE INDEX statements_by_subject ON statements USING btree (subject, kind)
table suspensions
    scope text not null
    owner text not null
    reason text not null
    until timestamp with time zone
    placed_by text not null
    created_at timestamp with time zone not null default compute_now()
    constraint suspensions_pkey PRIMARY KEY (scope)
    constraint suspensions_times_check CHECK ((isfinite(until) AND isfinite(created_at))) NOT VALID
table targets
    digest bytea not null
    pool text not null
    profile text not null
    doc text not null
    created_at timestamp with time zone not null default compute_now()
    constraint targets_digest_check CHECK ((octet_length(digest) = 32))
    constraint targets_pkey PRIMARY KEY (digest)
    constraint targets_times_check CHECK (isfinite(created_at)) NOT VALID
table token_uses
    csr_hash bytea not null
    token_id uuid
    node_id uuid not null
    answer bytea not null
    created_at timestamp with time zone not null default compute_now()
    constraint token_uses_csr_hash_check CHECK ((octet_length(csr_hash) = 32))
    constraint token_uses_node_id_fkey FOREIGN KEY (node_id) REFERENCES nodes(id) ON DELETE CASCADE
    constraint token_uses_pkey PRIMARY KEY (csr_hash)
    constraint token_uses_times_check CHECK (isfinite(created_at)) NOT VALID
    constraint token_uses_token_id_fkey FOREIGN KEY (token_id) REFERENCES join_tokens(id)
table trust_checkpoints
    source text not null
    commit text not null
    epoch bigint not null
    seq bigint not null
    body bytea not null
    signature bytea not null
    at timestamp with time zone not null default compute_now()
    constraint trust_checkpoints_pkey PRIMARY KEY (source)
    constraint trust_checkpoints_times_check CHECK (isfinite(at)) NOT VALID
table trust_epochs
    epoch bigint not null
    digest text not null
    policy bytea not null
    commit text not null
    statements bytea[] not null
    at timestamp with time zone not null default compute_now()
    constraint trust_epochs_epoch_check CHECK ((epoch > 0))
    constraint trust_epochs_pkey PRIMARY KEY (epoch)
    constraint trust_epochs_times_check CHECK (isfinite(at)) NOT VALID
table trust_revocations
    seq bigint not null identity
    digest text not null
    epoch bigint not null
    raw bytea not null
    constraint trust_revocations_digest_key UNIQUE (digest)
    constraint trust_revocations_epoch_check CHECK ((epoch > 0))
    constraint trust_revocations_pkey PRIMARY KEY (seq)
    constraint trust_revocations_raw_check CHECK ((octet_length(raw) <= 16384))
table work_queue fillfactor=70
    kind text not null
    key text not null
    lease text not null
    generation bigint not null default 1
    due_at timestamp with time zone not null default compute_now()
    attempts integer not null default 0
    claimed_by uuid
    claim_epoch bigint
    constraint work_queue_check CHECK (((claimed_by IS NULL) = (claim_epoch IS NULL)))
    constraint work_queue_pkey PRIMARY KEY (kind, key)
    constraint work_queue_times_check CHECK (isfinite(due_at)) NOT VALID
    CREATE INDEX work_queue_due ON work_queue USING btree (due_at)
table workers fillfactor=50
    id uuid not null
    role text not null
    host text not null
    pid integer not null
    pid_namespace text
    started_at timestamp with time zone not null default compute_now()
    heartbeat_at timestamp with time zone not null default compute_now()
    expires_at timestamp with time zone not null
    constraint workers_end_check CHECK ((expires_at <= (heartbeat_at + '00:05:00'::interval)))
    constraint workers_pkey PRIMARY KEY (id)
    constraint workers_times_check CHECK ((isfinite(started_at) AND isfinite(heartbeat_at) AND isfinite(expires_at))) NOT VALID
function audit_chain_is_kept()  BEGIN IF TG_OP = 'DELETE' AND current_setting('better_compute.sets_aside', true) = 'on' THEN RETURN NULL; END IF; RAISE EXCEPTION 'the audit log is append only'; END
function audit_is_append_only()  BEGIN RAISE EXCEPTION 'the audit log is append only'; END
function audit_joins_tail()  BEGIN INSERT INTO audit_tail (seq) VALUES (NEW.seq); RETURN NULL; END
function commands_move()  BEGIN IF NEW.state = 'pending' AND OLD.state <> 'pending' AND OLD.acked_at IS NOT NULL AND NOT OLD.retry_safe THEN RAISE EXCEPTION 'a command that its node has does not wait again'; END IF; IF NEW.state = 'dispatched' AND OLD.state = 'pending' THEN NEW.dispatched_at := compute_now(); END IF; IF NEW.state IN ('acked', 'running') AND NEW.acked_at IS NULL THEN NEW.acked_at := compute_now(); END IF; IF NEW.state = 'running' AND NEW.started_at IS NULL THEN NEW.started_at := compute_now(); END IF; RETURN NEW; END
function compute_now()  SELECT statement_timestamp() + COALESCE(NULLIF(current_setting('compute.clock_offset', true), ''), '0')::interval
function node_allowed_kinds(uuid)  BEGIN RETURN ( SELECT CASE WHEN c.counts THEN c.allowed_kinds ELSE '{}' END FROM (SELECT c.allowed_kinds, c.issued_at, c.not_after, c.identity_generation = n.identity_generation AND c.revoked_at IS NULL AS counts FROM node_certs c JOIN nodes n ON n.id = c.node_id WHERE c.node_id = node) AS c ORDER BY c.counts DESC, c.issued_at DESC, c.not_after DESC LIMIT 1 ); END
function node_bucket(nodes)  SELECT CASE WHEN n.role <> 'host' THEN 'excluded' -- IS NOT TRUE: a pool or an owner that is missing makes the comparison null, and null is not ours. WHEN (n.trust = 'platform' OR (n.trust = 'tenant-owned' AND n.owner_tenant = (SELECT p.owner_tenant FROM pools p WHERE p.name = n.pool))) IS NOT TRUE THEN 'excluded' WHEN n.maintenance OR n.cordoned THEN 'maintenance' WHEN n.provision_state NOT IN ('adopted', 'deployed') THEN 'provisioning' WHEN n.observed_generation < 1 THEN 'provisioning' WHEN n.connectivity <> 'connected' THEN 'unreachable' WHEN cardinality(n.no_schedule_reasons) > 0 THEN 'unhealthy' ELSE 'schedulable' END
function outbox_life() SELECT max(life) FROM outbox_lives
function worker_lives(workers)  SELECT member.expires_at > compute_now() AND member.expires_at <= compute_now() + interval '6 minutes' AND member.heartbeat_at <= compute_now() + interval '1 minute'
