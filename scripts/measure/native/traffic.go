package native

// traffic is a flow of bytes or frames that goes on until it is stopped.
type traffic interface {
	count() uint64 // bytes or frames received
	stop() error
}

// traffic1 converts t to traffic. If there is an error, it returns a nil interface, and not an
// interface with a nil pointer.
func traffic1[T traffic](t T, err error) (traffic, error) {
	if err != nil {
		return nil, err
	}
	return t, nil
}
