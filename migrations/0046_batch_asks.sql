-- What asks for a batch and is none: a document whose history or policy is not known yet or whose name was used before, and a
-- proposal that does not count. A pass of the source writes a row when it differs; nothing is done because of one.
CREATE TABLE batch_asks (
    origin   text NOT NULL CHECK (origin IN ('document', 'proposal')),
    -- A document's name, or a proposal's branch below bc/proposals/.
    name     text NOT NULL,
    -- Why it is none: a stable word, and the same for people.
    code     text NOT NULL,
    message  text NOT NULL,
    -- Passes try it again by themselves; else somebody has to do something.
    waits    boolean NOT NULL,
    -- A proposal's commit.
    commit   text,
    -- Where it is written.
    place    text,
    -- What was looked at, and under what: the same is not judged twice.
    looked   text NOT NULL,
    since    timestamptz NOT NULL DEFAULT compute_now(),
    PRIMARY KEY (origin, name)
);
