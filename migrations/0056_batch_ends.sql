-- What has ended has no mark: whatever is written into its row afterwards, nobody put that down. A command that no gateway ever had
-- has no signature any more either.
UPDATE batches SET mark = NULL WHERE ended_at IS NOT NULL;
UPDATE commands
SET mark = NULL,
    signature = CASE WHEN dispatched_at IS NOT NULL THEN signature END,
    signed_at = CASE WHEN dispatched_at IS NOT NULL THEN signed_at END
WHERE settled_at IS NOT NULL AND not_after > compute_now();

-- Serves the question, before a command is signed, whether the log says that its batch ended.
CREATE INDEX audit_ends_of_batches ON audit ((detail ->> 'batchId'))
    WHERE action IN ('batches.done', 'batches.expired', 'batches.void', 'batches.rejected', 'batches.cancelled');
