-- services: reads which services are held for all workers, and which a person released.
-- Index: none; the table has a row for each service.
SELECT service, state = 'held', held_by IS NOT NULL, coalesce(released_at, '0001-01-01'), scopes, place
FROM services
ORDER BY service
