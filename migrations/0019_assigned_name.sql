-- The name that a renamed machine is still told, until it is assigned anew: a rename reaches hosts, by templates, and waits
-- for freezes, pins, waves and binding like any other change. Null: its own.
ALTER TABLE nodes ADD COLUMN assigned_name text;
