//go:build !race

package messaging_test

import "testing"

// TestMillionFrames sends many frames over adapters of each family: see familyFrames. The race
// detector would take minutes, and sees no more than in TestFamilyFrames.
func TestMillionFrames(t *testing.T) { familyFrames(t, 1_000_000, false) }
