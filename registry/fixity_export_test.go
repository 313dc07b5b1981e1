package registry

import "context"

// ClaimFixitySQL is the statement by which copies are claimed.
const ClaimFixitySQL = claimFixitySQL

// EstimatedFixityStatus is FixityStatus where there are too many copies to count.
func (r *Registry) EstimatedFixityStatus(ctx context.Context) (FixityStatus, error) {
	return r.fixityStatus(ctx, 90, 3, 4, 4000)
}
