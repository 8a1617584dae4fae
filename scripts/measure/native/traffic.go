package native

// traffic is something that goes on.
type traffic interface {
	count() uint64 // bytes or frames received
	stop() error
}

// traffic1 keeps a nil pointer from becoming an interface that is not nil.
func traffic1[T traffic](t T, err error) (traffic, error) {
	if err != nil {
		return nil, err
	}
	return t, nil
}
