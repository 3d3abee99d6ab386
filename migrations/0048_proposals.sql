-- What callers of the API asked for where people approve: the file of a commit that whoever follows the fleet signs as a service
-- and pushes. Gone once that commit is there and the machines of its batch were resolved.
CREATE TABLE proposals (
    batch_id uuid PRIMARY KEY REFERENCES batches (id) ON DELETE CASCADE,
    -- The file.
    text     text NOT NULL,
    -- Made over it by a process that holds the service's keys: nothing is signed because somebody wrote a row.
    mark     bytea NOT NULL
);
