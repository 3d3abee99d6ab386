-- What happened, for whoever follows: written in the transaction of the cause. Read in the order of (xid, id) and only up
-- to the oldest transaction that still runs, so that a reader never passes a row that is committed later.
CREATE TABLE outbox (
    id      bigint GENERATED ALWAYS AS IDENTITY,
    xid     xid8 NOT NULL DEFAULT pg_current_xact_id(),
    kind    text NOT NULL,
    subject text NOT NULL,
    doc     text NOT NULL,
    at      timestamptz NOT NULL DEFAULT compute_now(),
    PRIMARY KEY (xid, id)
);
CREATE INDEX outbox_by_age ON outbox (at);
