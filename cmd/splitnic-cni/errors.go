package main

import (
	"fmt"

	"github.com/containernetworking/cni/pkg/types"
)

// Codes of errors that the specification leaves to plugins: docs/cni.md has them all.
const (
	errAttached uint = 100 + iota // there is a card for the attachment
	errCard                       // the agent could not make or remove the card
	errDiffers                    // what CHECK found is not what ADD has made
)

// invalid is an error about the configuration of a network.
func invalid(network string, err error) error {
	return types.NewError(types.ErrInvalidNetworkConfig, fmt.Sprintf("configuration of network %s: %v", network, err), "")
}
