package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/pflag"

	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/tap/steer"
)

// latencyFlags are the flags about the latency channel.
type latencyFlags struct {
	on                         bool
	dscp                       []string
	size                       int
	trafficClass, serviceLevel uint8
}

// add adds the flags; usage is that of --latency-queue, which is on by default
// or not.
func (l *latencyFlags) add(f *pflag.FlagSet, on bool, usage string) {
	f.BoolVar(&l.on, "latency-queue", on, usage)
	f.StringSliceVar(&l.dscp, "latency-dscp", steer.DefaultClasses().DSCP.Words(), "DSCPs of latency-sensitive frames, by name or number, or none; ARP, neighbour discovery and ICMP echo always are")
	f.IntVar(&l.size, "latency-size", 0, "IP packets of up to so many bytes are latency-sensitive too (default: none)")
	f.Uint8Var(&l.trafficClass, "latency-traffic-class", 0, "traffic class of the latency channel's packets on the fabric, such as 0xb8 for EF (default: that of --traffic-class)")
	f.Uint8Var(&l.serviceLevel, "latency-service-level", 0, "InfiniBand service level of the latency channel's packets, 1 to 15 (default: that of --service-level)")
}

// apply sets what the flags say, and returns the classes of frames; nil if no
// latency queue is wanted.
func (l *latencyFlags) apply(m *messaging.Config) (*steer.Classes, error) {
	set, err := steer.ParseDSCP(l.dscp)
	if err != nil {
		return nil, usageError{fmt.Errorf("--latency-dscp: %w", err)}
	}
	c := &steer.Classes{DSCP: set, Size: l.size}
	if err := c.Check(); err != nil {
		return nil, usageError{fmt.Errorf("--latency-size %d: must be 0 to %d", l.size, steer.MaxSize)}
	}
	if l.serviceLevel > 15 {
		return nil, usageError{fmt.Errorf("--latency-service-level %d: must be 0 to 15", l.serviceLevel)}
	}
	m.LatencyTrafficClass, m.LatencyServiceLevel = l.trafficClass, l.serviceLevel
	if !l.on {
		return nil, nil
	}
	return c, nil
}

// probe reports why the kernel cannot steer frames, before anything depends on
// it: in the program that it is asked to take, only the numbers will differ.
func probe(c *steer.Classes, log *slog.Logger) error {
	if c == nil {
		return nil
	}
	err := canSteer(*c)
	if err != nil {
		log.Warn("no latency queue", "reason", err)
	}
	return err
}

func canSteer(c steer.Classes) error {
	p, err := steer.Rule{Classes: c, Queues: 2, Limit: messaging.LatencyLimit(1500)}.Load(steer.TAP)
	if err != nil {
		return err
	}
	return p.Close()
}

// checkSteering is the doctor's.
func checkSteering(r *report) {
	if err := canSteer(steer.DefaultClasses()); err != nil {
		r.warn("steering", err.Error(), "leave --latency-queue out, or give the service AmbientCapabilities=CAP_BPF CAP_NET_ADMIN")
		return
	}
	r.ok("steering", "latency-sensitive frames can have a queue of their own (--latency-queue)")
}

// extra is how many queues there are besides the ordinary ones.
func extra(c *steer.Classes) int {
	if c == nil {
		return 0
	}
	return 1
}

// errManyQueues is about a latency queue that has no room among the queues.
var errManyQueues = errors.New("with --latency-queue there can be one less")

// printLatency prints what has become of the wish for a latency queue.
func printLatency(w io.Writer, indent string, s *steer.Status) {
	switch {
	case s == nil:
	case s.On:
		small := ""
		if s.Size > 0 {
			small = fmt.Sprintf(", packets up to %d bytes", s.Size)
		}
		fmt.Fprintf(w, "%slatency queue\tDSCP %v, ARP, ND, echo%s; frames up to %d bytes\n", indent, s.DSCP, small, s.Limit)
	default:
		fmt.Fprintf(w, "%slatency queue\tnone: %s\n", indent, s.Reason)
	}
}

// class says what a data channel is for, if not for all frames.
func class(c *messaging.ChannelStats) string {
	if c.Latency {
		return " (latency)"
	}
	return ""
}
