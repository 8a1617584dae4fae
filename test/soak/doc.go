// Package soak connects two endpoints, moves frames between them and disconnects them, thousands of
// times, sometimes in the middle of the traffic. It checks that all frames arrive and that no
// resources are left behind. docs/testing.md describes how to run it for hours and how to replay a
// failure.
package soak
