-- Record had a cap of two. Bags that waited for it took the slots of all others, so that hardly any
-- went on from stage to stage in its slot, and two cores recorded no more than 17 small bags a second.
-- Eight at once keep a hundred workers from flooding the registry as well, and one from waiting.

-- +goose Up

UPDATE stage_settings SET cap = 8 WHERE action = 'Ingest' AND stage = 'Record' AND cap = 2;
