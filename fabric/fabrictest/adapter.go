package fabrictest

// Adapter has the ways in which the devices of a network differ from one that can do everything,
// as the adapters and drivers of some vendors do. The zero value is no difference.
type Adapter struct {
	// Inline is the largest QP.MaxInline in bytes; 0: 512, negative: no inline data at all.
	Inline int
	// NoSolicited is set if a completion queue cannot be armed for solicited completions only.
	NoSolicited bool
	// NoQuery is set if a queue pair cannot be asked whether it has failed.
	NoQuery bool
}

// mostInline returns the largest QP.MaxInline, in bytes.
func (a *Adapter) mostInline() int {
	switch {
	case a.Inline == 0:
		return 512
	default:
		return max(a.Inline, 0)
	}
}
