package progress

import "context"

func (s *Store) Probe(ctx context.Context) error { return s.client.Ping(ctx).Err() }
