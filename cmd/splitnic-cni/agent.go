package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/splitnic/splitnic/cmd/internal/cards"
	"github.com/splitnic/splitnic/internal/statussock"
)

// explain turns the error of a request to the agent into an error of CNI about what, and adds
// what to do. Its code is unreachable if the agent has not answered.
func explain(what string, c *config, err error, unreachable uint) error {
	code, remedy := errCard, ""
	var refused *cards.Refused
	switch {
	case errors.As(err, &refused):
		code, remedy = explainRefused(&refused.Failure)
	case errors.Is(err, statussock.ErrUnknown):
		code = types.ErrInvalidNetworkConfig
		remedy = `"socket" has to be that of splitnic agent`
	case errors.Is(err, statussock.ErrNobody):
		code = unreachable
		remedy = fmt.Sprintf("start splitnic agent on this machine, or name its --status-socket as \"socket\" of network %s",
			c.Name)
	case errors.Is(err, statussock.ErrSilent):
		code = unreachable
	case errors.Is(err, context.Canceled):
		code, remedy = types.ErrTryAgainLater, "the container runtime has ended "+program
	}
	return types.NewError(code, fmt.Sprintf("%s: %v", what, err), remedy)
}

// explainRefused returns the code of CNI, and what to do, for a request that the agent has
// refused.
func explainRefused(f *cards.Failure) (code uint, remedy string) {
	switch {
	case f.Code == cards.Invalid && f.Field == "netns":
		return types.ErrInvalidNetNS, "the agent has to see the container's network namespace under that path"
	case f.Code == cards.Invalid:
		return types.ErrInvalidNetworkConfig, ""
	case f.Code == cards.Full, f.Code == cards.Stopping:
		return types.ErrTryAgainLater, ""
	}
	return errCard, ""
}

// isUnknown reports whether the agent has answered that there is no such card.
func isUnknown(err error) bool {
	var refused *cards.Refused
	return errors.As(err, &refused) && refused.Code == cards.Unknown
}

// bounded returns ctx with the configured timeout. The cause of the timeout says that the agent
// or the IPAM plugin has not answered.
func (c *config) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, c.timeout, fmt.Errorf("%w within %v", statussock.ErrSilent, c.timeout))
}

func (c *config) agent() cards.Client { return cards.Client(c.Socket) }

// state returns the state of a card, and the error that keeps it in this state.
func state(s *cards.Status) string {
	if s.Error == "" {
		return string(s.State)
	}
	return fmt.Sprintf("%s: %s", s.State, s.Error)
}

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
