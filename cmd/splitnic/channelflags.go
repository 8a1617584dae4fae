package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/splitnic/splitnic/splitdrv/messaging"
)

// channelFlags are the flags about the queue pairs and completion queues of a
// session.
type channelFlags struct {
	moderation                 moderationValue
	trafficClass, serviceLevel uint8
	protection                 string
}

func (c *channelFlags) add(f *pflag.FlagSet) {
	f.Var(&c.moderation, "cq-moderation", "wake up for so many completions at once, or so long after the first of them, such as 16,50us, where the device can (default: for each)")
	f.Uint8Var(&c.trafficClass, "traffic-class", 0, "traffic class of all packets on the fabric, DSCP in its upper six bits, such as 0x68")
	f.Uint8Var(&c.serviceLevel, "service-level", 0, "InfiniBand service level of all packets on the fabric, 0 to 15")
	addProtection(f, &c.protection)
}

// apply sets what the flags say.
func (c *channelFlags) apply(m *messaging.Config) error {
	if c.serviceLevel > 15 {
		return usageError{fmt.Errorf("--service-level %d: must be 0 to 15", c.serviceLevel)}
	}
	m.Moderation = messaging.Moderation(c.moderation)
	m.TrafficClass, m.ServiceLevel = c.trafficClass, c.serviceLevel
	var err error
	m.Protection, err = parseProtection(c.protection)
	return err
}

// addProtection adds the flag of that name.
func addProtection(f *pflag.FlagSet, p *string) {
	f.StringVar(p, "protection", "", "what bounds the other half to the memory that it is lent: "+protectionNames()+" (default: window where the device enforces the bounds of memory windows, else region)")
}

// parseProtection is the value of --protection, empty for the default.
func parseProtection(name string) (messaging.Protection, error) {
	if name == "" {
		return "", nil
	}
	p, err := messaging.ParseProtection(name)
	if err != nil {
		return "", usageError{fmt.Errorf("--protection %q: must be %s", name, protectionNames())}
	}
	return p, nil
}

// protectionNames lists them for people.
func protectionNames() string {
	var names []string
	for _, p := range messaging.Protections() {
		names = append(names, string(p))
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// moderationValue is the value of --cq-moderation.
type moderationValue messaging.Moderation

// Set implements pflag.Value.
func (v *moderationValue) Set(s string) error {
	count, period, ok := strings.Cut(s, ",")
	if !ok {
		return fmt.Errorf("%q: must be a number of completions and a time, such as 16,50us", s)
	}
	var m messaging.Moderation
	var err error
	if m.Count, err = strconv.Atoi(strings.TrimSpace(count)); err != nil {
		return fmt.Errorf("%q is no number of completions", count)
	}
	if m.Period, err = time.ParseDuration(strings.TrimSpace(period)); err != nil {
		return err
	}
	if err := m.Check(); err != nil {
		return err
	}
	*v = moderationValue(m)
	return nil
}

// String implements pflag.Value.
func (v *moderationValue) String() string {
	if *v == (moderationValue{}) {
		return ""
	}
	return fmt.Sprintf("%d,%v", v.Count, v.Period)
}

// Type implements pflag.Value.
func (v *moderationValue) Type() string { return "COUNT,PERIOD" }
