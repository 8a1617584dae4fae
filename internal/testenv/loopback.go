package testenv

import (
	"fmt"
	"os"
)

// Loopback returns an address of the loopback device that no test of another process uses. So no
// other process can take a port that was free, or that a test has just closed.
func Loopback() string {
	pid := os.Getpid()
	return fmt.Sprintf("127.%d.%d.%d", 1+pid>>16&0x7f, pid>>8&0xff, pid&0xff)
}
