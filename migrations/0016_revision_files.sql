-- The files of every applied revision, so that its tree can be built again without git: a rollback, and what is in force
-- while the git host is away. Written by apply. A file is a row from the revision that brought it until the one that
-- changed or took it, and its bytes are kept once however often they occur, so that a revision costs what it changed.
CREATE TABLE blobs (
    digest bytea PRIMARY KEY CHECK (octet_length(digest) = 32),
    bytes  bytea NOT NULL
);

CREATE TABLE revision_files (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    source    text NOT NULL REFERENCES sources (name),
    path      text NOT NULL,
    from_seq  bigint NOT NULL REFERENCES revisions (seq),
    until_seq bigint REFERENCES revisions (seq),
    what      text NOT NULL CHECK (what IN ('file', 'symlink', 'submodule', 'too-large', 'unreadable', 'bad-path')),
    digest    bytea REFERENCES blobs (digest),
    -- The size of a file that is too large, or why one was not readable.
    note      text NOT NULL DEFAULT '',
    CHECK ((what = 'file') = (digest IS NOT NULL)),
    CHECK (until_seq > from_seq)
);
-- Serves the tree in force, which every apply compares with.
-- A path may be longer than an index takes, and none is searched by its path.
CREATE INDEX revision_files_in_force ON revision_files (source) WHERE until_seq IS NULL;
-- Serves what one revision changed.
CREATE INDEX revision_files_by_start ON revision_files (from_seq);
CREATE INDEX revision_files_by_end ON revision_files (until_seq) WHERE until_seq IS NOT NULL;

-- The digest of the whole tree, null for a revision that was applied before files were kept, and the plan it carried out.
ALTER TABLE revisions ADD COLUMN tree_digest bytea CHECK (octet_length(tree_digest) = 32);
ALTER TABLE revisions ADD COLUMN plan uuid;
-- Serves the revision of a commit.
CREATE INDEX revisions_by_commit ON revisions (source, commit, seq DESC);

-- An object that goes on under another name is neither there nor removed in the history of its old one.
ALTER TABLE revision_objects DROP CONSTRAINT revision_objects_state_check;
ALTER TABLE revision_objects ADD CONSTRAINT revision_objects_state_check
    CHECK (state IN ('declared', 'retained', 'removed', 'moved'));
