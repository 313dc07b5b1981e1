package storage

// Name is the bucket's name at its provider.
func (b *Bucket) Name() string { return b.target.Bucket }
