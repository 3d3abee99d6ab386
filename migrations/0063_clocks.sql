-- How far the clock of a process's host is from the one here, in milliseconds, as the process measured it. Nothing goes by it.
ALTER TABLE key_holders ADD COLUMN clock_off bigint NOT NULL DEFAULT 0;
