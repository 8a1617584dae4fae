package main

import (
	"fmt"

	"github.com/containernetworking/cni/pkg/types"
)

// Codes of errors that the specification reserves for plugins. docs/cni.md lists them.
const (
	errAttached uint = 100 + iota // the attachment already has a card
	errCard                       // the agent could not make or remove the card
	errDiffers                    // CHECK has found something else than ADD has made
)

func invalid(network string, err error) error {
	return types.NewError(types.ErrInvalidNetworkConfig, fmt.Sprintf("configuration of network %s: %v", network, err), "")
}
