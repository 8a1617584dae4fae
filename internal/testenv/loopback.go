package testenv

import (
	"fmt"
	"os"
)

// Loopback is an address of the loopback device that no test of another process
// uses: a port that was free, or that a test has just given up, is not taken by
// somebody else meanwhile.
func Loopback() string {
	pid := os.Getpid()
	return fmt.Sprintf("127.%d.%d.%d", 1+pid>>16&0x7f, pid>>8&0xff, pid&0xff)
}
