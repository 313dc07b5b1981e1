package nsqcompat

// AccessError says why a request is not let in.
type AccessError struct {
	Status int // of HTTP: 401 or 403
	Reason string
}

func (e *AccessError) Error() string { return e.Reason }
