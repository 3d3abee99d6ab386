-- Plans that were made to be looked at, by `plans.preview`: found again by the digest that a commit's trailer carries.
ALTER TABLE plans DROP CONSTRAINT plans_state_check;
ALTER TABLE plans ADD CONSTRAINT plans_state_check CHECK (state IN ('open', 'applied', 'superseded', 'shown'));
-- What a preview was made of need not be a commit.
ALTER TABLE plans ALTER COLUMN commit DROP NOT NULL;
CREATE INDEX plans_by_digest ON plans (digest, created_at DESC);
CREATE INDEX plans_shown ON plans (created_at DESC) WHERE state = 'shown';
