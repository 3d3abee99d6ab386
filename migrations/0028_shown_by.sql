-- Who asked for a plan that was made to be looked at: each has room of its own.
ALTER TABLE plans ADD COLUMN shown_by text NOT NULL DEFAULT '';
DROP INDEX plans_shown;
CREATE INDEX plans_shown ON plans (shown_by, created_at DESC) WHERE state = 'shown';
