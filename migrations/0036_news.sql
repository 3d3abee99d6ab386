-- What a gateway asks every few seconds, for all of its sessions at once, costs what changed and not how many there are.

CREATE INDEX nodes_by_signature ON nodes (spec_signed_at) WHERE spec_signed_at IS NOT NULL;
CREATE INDEX nodes_asked ON nodes (id) WHERE inventory_wanted <> '{}';
CREATE INDEX node_certs_by_revocation ON node_certs (revoked_at) WHERE revoked_at IS NOT NULL;
CREATE INDEX commands_to_cancel ON commands (node_id)
    WHERE state IN ('dispatched', 'acked', 'running') AND cancel_requested_at IS NOT NULL;
