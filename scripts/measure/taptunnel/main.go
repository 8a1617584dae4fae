// Command taptunnel is a simple Ethernet device over UDP, to which the benchmarks compare. It
// carries frames as the kernel has them without offloads, with a read and a write for each frame,
// one goroutine for each direction, and no encryption. It runs until it is killed.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"

	"github.com/songgao/water"
)

// maxFrame is more than the longest frame of an Ethernet device, in bytes.
const maxFrame = 1 << 16

func main() {
	name := flag.String("name", "tap0", "TAP device to make")
	local := flag.String("local", "", "UDP address to receive on")
	remote := flag.String("remote", "", "UDP address of the other end")
	flag.Parse()
	if err := run(*name, *local, *remote); err != nil {
		fmt.Fprintln(os.Stderr, "taptunnel:", err)
		os.Exit(1)
	}
}

func run(name, local, remote string) error {
	from, err := net.ResolveUDPAddr("udp", local)
	if err != nil {
		return fmt.Errorf("--local: %w", err)
	}
	to, err := net.ResolveUDPAddr("udp", remote)
	if err != nil {
		return fmt.Errorf("--remote: %w", err)
	}
	socket, err := net.DialUDP("udp", from, to)
	if err != nil {
		return err
	}
	defer socket.Close()
	device, err := water.New(water.Config{DeviceType: water.TAP,
		PlatformSpecificParams: water.PlatformSpecificParams{Name: name}})
	if err != nil {
		return fmt.Errorf("making the TAP device %s: %w", name, err)
	}
	defer device.Close()
	ended := make(chan error, 2)
	go func() { ended <- forward(socket, device) }()
	go func() { ended <- forward(device, socket) }()
	return <-ended
}

// forward copies frames, with a read and a write for each frame. It returns an error of either,
// unless only a frame was lost.
func forward(to io.Writer, from io.Reader) error {
	frame := make([]byte, maxFrame)
	for {
		n, err := from.Read(frame)
		if err == nil {
			_, err = to.Write(frame[:n])
		}
		if err != nil && !lost(err) {
			return err
		}
	}
}

// lost reports whether err says that a frame was lost, as on any Ethernet, while the next one may
// arrive: the other end does not exist yet, the device is down, or a queue is full.
func lost(err error) bool {
	for _, e := range []error{syscall.ECONNREFUSED, syscall.EIO, syscall.ENOBUFS} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
