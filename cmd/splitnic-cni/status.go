package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/splitnic/splitnic/internal/statussock"
)

// agentStatus is the part of the agent's status that STATUS uses.
type agentStatus struct {
	Role     string            `json:"role"`
	MaxCards int               `json:"max_cards"`
	Cards    []json.RawMessage `json:"cards"`
}

// status implements STATUS: it checks whether ADD can succeed.
func status(ctx context.Context, args *skel.CmdArgs) error {
	c, err := load(args)
	if err == nil {
		err = c.allKnown()
	}
	if err != nil {
		return err
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	network := "network " + c.Name
	raw, err := statussock.Read(ctx, c.Socket)
	var s agentStatus
	if err == nil {
		err = json.Unmarshal(raw, &s)
	}
	if err == nil && s.Role != "agent" {
		err = fmt.Errorf("status: %s: %w", c.Socket, statussock.ErrUnknown)
	}
	if err != nil {
		// The agent moves the frames of existing containers' cards, too. So their connectivity
		// is limited.
		return explain(network, c, err, types.ErrLimitedConnectivity)
	}
	if len(s.Cards) >= s.MaxCards {
		return types.NewError(types.ErrPluginNotAvailable,
			fmt.Sprintf("%s: the agent has its maximum number of cards: %d", network, s.MaxCards), "raise --max-cards")
	}
	if c.IPAM.Type != "" {
		if err := invoke.DelegateStatus(ctx, c.IPAM.Type, args.StdinData, nil); err != nil {
			return c.ipamError("STATUS", err)
		}
	}
	return nil
}
