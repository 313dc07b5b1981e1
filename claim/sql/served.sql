-- served: records how far the virtual start times of each size band have come.
-- Index: none; the table has a row for each size band.
-- Parameters: $1, $2 size bands and virtual start times.
UPDATE size_bands b SET virtual_time = come.virtual_start
FROM unnest($1::smallint[], $2::bigint[]) AS come (band, virtual_start)
WHERE b.band = come.band AND b.virtual_time < come.virtual_start
