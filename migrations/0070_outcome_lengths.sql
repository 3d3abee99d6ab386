-- What an outcome says is read on a page and costs no more than that, whoever writes it. What is longer already is cut.
UPDATE outcomes
SET reason = left(reason, 200), message = left(message, 4000), place = left(place, 400)
WHERE length(reason) > 200 OR length(message) > 4000 OR length(place) > 400;
ALTER TABLE outcomes ADD CONSTRAINT outcomes_lengths_check
    CHECK (length(reason) <= 200 AND length(message) <= 4000 AND length(place) <= 400);
