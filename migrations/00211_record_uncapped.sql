-- Record had a cap of two. Bags that waited for it took the slots of all others, so that hardly any
-- went on from stage to stage in its slot, and two cores recorded no more than 17 small bags a second.
-- What bounds the load of the registry is the connections of each process.

-- +goose Up

UPDATE stage_settings SET cap = NULL WHERE action = 'Ingest' AND stage = 'Record' AND cap = 2;
