package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/splitnic/splitnic/splitdrv/messaging/cq"
)

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

// spinValue is the value of advanced.spin: how long to poll before sleeping, or auto.
func spinValue(spin *time.Duration, adaptive *bool) value {
	set := func(s string) (err error) {
		*spin, *adaptive, err = parseSpin(s)
		return err
	}
	return value{"DURATION", set, func() string {
		switch {
		case *spin == 0:
			return ""
		case *adaptive:
			return "auto:" + spin.String()
		}
		return spin.String()
	}}
}
