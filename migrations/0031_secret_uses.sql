-- Which nodes refer to which secrets: those in their spec in force, and those that a spec waits for. Whoever puts a new
-- version finds here who has to hear of it.
CREATE TABLE secret_uses (
    node_id uuid NOT NULL REFERENCES nodes (id) ON DELETE CASCADE,
    name    text NOT NULL,
    PRIMARY KEY (name, node_id)
);
CREATE INDEX secret_uses_by_node ON secret_uses (node_id);
