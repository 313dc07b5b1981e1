-- Each file and event that is recorded has the key of its object and institution checked.
-- Of the indexes that fit, the planner took the one on the institution alone while
-- statistics said that there were hardly any objects, and keeps such a plan until they are
-- renewed: each check walked all objects of the institution. With both columns any choice is
-- a look-up.

-- +goose Up

CREATE INDEX intellectual_objects_of_institution ON intellectual_objects (institution_id, id);
DROP INDEX intellectual_objects_institution;
