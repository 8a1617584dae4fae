package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/splitnic/splitnic/cmd/internal/cards"
	"github.com/splitnic/splitnic/internal/statussock"
)

// explain makes what asking the agent has failed with an error of CNI about what, with
// what to do. Its code is one of those that unreachable has if there was no answer.
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

// explainRefused is what an answer of the agent means for a runtime.
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

// bounded ends ctx, by its cause, when the agent or the IPAM plugin has been silent for too long.
func (c *config) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, c.timeout, fmt.Errorf("%w within %v", statussock.ErrSilent, c.timeout))
}

func (c *config) agent() cards.Client { return cards.Client(c.Socket) }

// state is how far a card has got, and why no further.
func state(s *cards.Status) string {
	if s.Error == "" {
		return string(s.State)
	}
	return fmt.Sprintf("%s: %s", s.State, s.Error)
}
