// Package render formats the answers of the endpoints for people.
package render

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/daemon"
	"github.com/splitnic/splitnic/internal/printable"
)

// Status is the status of one daemon: of a host, an agent, or an I/O unit.
type Status struct {
	Host  *daemon.HostStatus
	Agent *daemon.AgentStatus
	Unit  *daemon.UnitStatus
}

// Role returns the role of the process.
func (s *Status) Role() string {
	switch {
	case s.Host != nil:
		return s.Host.Role
	case s.Agent != nil:
		return s.Agent.Role
	default:
		return s.Unit.Role
	}
}

// Parse parses the status that a daemon has answered.
func Parse(raw json.RawMessage) (s Status, err error) {
	var head struct {
		Role string `json:"role"`
	}
	if err = json.Unmarshal(raw, &head); err != nil {
		return s, fmt.Errorf("status: %w", err)
	}
	switch head.Role {
	case "host":
		s.Host = new(daemon.HostStatus)
		err = json.Unmarshal(raw, s.Host)
	case "agent":
		s.Agent = new(daemon.AgentStatus)
		err = json.Unmarshal(raw, s.Agent)
	default:
		s.Unit = new(daemon.UnitStatus)
		err = json.Unmarshal(raw, s.Unit)
	}
	if err != nil {
		return Status{}, fmt.Errorf("status: %w", err)
	}
	return s, nil
}

// Details prints everything about the daemons.
func Details(w io.Writer, all []Status) error {
	tw := tabwriter.NewWriter(printable.Writer(w), 0, 0, 2, ' ', 0)
	for _, s := range all {
		switch {
		case s.Host != nil:
			printHost(tw, s.Host)
		case s.Agent != nil:
			printAgent(tw, s.Agent)
		default:
			printUnit(tw, s.Unit)
		}
		if err := tw.Flush(); err != nil { // each daemon has its own column widths
			return err
		}
	}
	return nil
}
