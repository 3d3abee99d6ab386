-- A claim whose answer was lost may still be on its way to the database. Once its session was asked what it has in flight, it
-- takes nothing any more: claims are numbered, and those up to this number are void.
ALTER TABLE sessions ADD COLUMN claims_void bigint NOT NULL DEFAULT 0;
