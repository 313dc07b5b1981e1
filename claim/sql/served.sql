-- served: records how far the virtual start times of each size band have come.
-- Index: none; the table has a row for each size band.
-- Parameters: $1, $2 size bands and virtual start times.
UPDATE size_bands b SET turn = come.turn
FROM unnest($1::smallint[], $2::bigint[]) AS come (band, turn)
WHERE b.band = come.band AND b.turn < come.turn
