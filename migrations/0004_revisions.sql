-- What was applied: documents by digest, the objects that are in force, and the delta that each revision brought.
-- Revisions are kept so that a rollback works with the git host down.
CREATE TABLE documents (
    digest bytea PRIMARY KEY CHECK (octet_length(digest) = 32),
    doc    text NOT NULL
);

CREATE TABLE revisions (
    id           uuid PRIMARY KEY,
    seq          bigint GENERATED ALWAYS AS IDENTITY UNIQUE,
    source       text NOT NULL REFERENCES sources (name),
    commit       text NOT NULL,
    tree         text NOT NULL,
    branch       text NOT NULL,
    author       text NOT NULL,
    committer    text NOT NULL,
    subject      text NOT NULL,
    committed_at timestamptz NOT NULL,
    applied_at   timestamptz NOT NULL DEFAULT compute_now(),
    applied_by   text NOT NULL,
    digest       bytea NOT NULL,
    summary      jsonb NOT NULL
);

CREATE TABLE objects (
    kind     text NOT NULL,
    name     text NOT NULL,
    digest   bytea NOT NULL REFERENCES documents (digest),
    file     text NOT NULL,
    line     integer NOT NULL,
    state    text NOT NULL CHECK (state IN ('declared', 'retained', 'removed')),
    revision uuid NOT NULL REFERENCES revisions (id),
    PRIMARY KEY (kind, name)
);

CREATE TABLE revision_objects (
    revision uuid NOT NULL REFERENCES revisions (id),
    kind     text NOT NULL,
    name     text NOT NULL,
    digest   bytea NOT NULL REFERENCES documents (digest),
    file     text NOT NULL,
    line     integer NOT NULL,
    state    text NOT NULL CHECK (state IN ('declared', 'retained', 'removed')),
    PRIMARY KEY (revision, kind, name)
);
-- Serves the history of one object.
CREATE INDEX revision_objects_by_object ON revision_objects (kind, name);
