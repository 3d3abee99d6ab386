-- Whether the daemon of the session said that it runs commands. A gateway sends them to no other.
ALTER TABLE sessions ADD COLUMN commands boolean NOT NULL DEFAULT false;
