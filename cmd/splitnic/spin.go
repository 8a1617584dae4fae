package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/splitnic/splitnic/splitdrv/messaging/cq"
)

// spinValue is the value of advanced.spin: how long to poll before sleeping, or auto.
type spinValue struct {
	spin     *time.Duration
	adaptive *bool
}

// parseSpin parses a duration, auto, or auto with the longest time, such as auto:50us.
func parseSpin(text string) (spin time.Duration, adaptive bool, err error) {
	if text == "auto" {
		return cq.AdaptiveSpin, true, nil
	}
	text, adaptive = strings.CutPrefix(text, "auto:")
	spin, err = time.ParseDuration(text)
	if err != nil {
		return 0, false, fmt.Errorf("%q: must be a time such as 20us, auto, or auto with the longest time, such as auto:50us",
			text)
	}
	least := time.Duration(0)
	if adaptive {
		least = time.Microsecond
	}
	if spin < least || spin > cq.MaxSpin {
		return 0, false, fmt.Errorf("%v: must be %v to %v", spin, least, cq.MaxSpin)
	}
	return spin, adaptive, nil
}

// Set implements pflag.Value.
func (v spinValue) Set(s string) (err error) {
	*v.spin, *v.adaptive, err = parseSpin(s)
	return err
}

// String implements pflag.Value.
func (v spinValue) String() string {
	switch {
	case v.spin == nil || *v.spin == 0:
		return ""
	case *v.adaptive:
		return "auto:" + v.spin.String()
	}
	return v.spin.String()
}

// Type implements pflag.Value.
func (spinValue) Type() string { return "DURATION" }
