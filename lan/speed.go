package lan

import "github.com/splitnic/splitnic/internal/ethtool"

// speed returns the speed of a network card in Mbit/s, or 0 if it has none. query
// is a socket in the card's namespace.
func speed(query int, nic string) int {
	mbit, err := ethtool.Speed(query, nic)
	if err != nil {
		return 0
	}
	return mbit
}
