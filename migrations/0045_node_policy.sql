-- Which trust policy a node believes, as it said in bytes that it signed: whom it asks before it does harm. Null before it said so.
ALTER TABLE nodes
    ADD COLUMN policy_epoch bigint CHECK (policy_epoch >= 0),
    ADD COLUMN policy_digest text,
    -- Why it does not take the next one.
    ADD COLUMN policy_refused text;
