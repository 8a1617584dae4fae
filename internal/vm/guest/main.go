// Command guest is process 1 of a virtual machine with one virtio network card. It carries out the
// commands that it reads as lines from the second serial port. The answer to each line is ok or an
// error:
//
//	up ADDRESS/LENGTH MTU	sets the card up, with an address and an MTU
//	queues N		has the driver use N pairs of rings
//	rebind			unbinds the driver from the card, and binds it again
//
// It also serves three TCP ports. Port 7000 sends all data back, and their SHA-256 at the end. Port
// 7001 discards all data. Port 7002 sends zeros.
package main

import (
	"bufio"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

func main() {
	log.SetFlags(0)
	if err := run(); err != nil {
		log.Print("guest: ", err)
	}
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART) // ends the emulator
}

func run() error {
	if err := prepare(); err != nil {
		return err
	}
	port, err := os.OpenFile("/dev/ttyS1", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return err
	}
	if err := raw(int(port.Fd())); err != nil {
		return err
	}
	for address, do := range map[string]func(net.Conn) error{":7000": echo, ":7001": sink, ":7002": source} {
		l, err := net.Listen("tcp", address) // before the answer below
		if err != nil {
			return err
		}
		go serve(l, do)
	}
	answer := func(err error) {
		if err != nil {
			fmt.Fprintf(port, "failed: %s\n", strings.ReplaceAll(err.Error(), "\n", "; "))
			return
		}
		fmt.Fprintln(port, "ok")
	}
	answer(nil) // the machine has booted
	for lines := bufio.NewScanner(port); lines.Scan(); {
		answer(handle(strings.Fields(lines.Text())))
	}
	return errors.New("nobody commands any more")
}

// prepare mounts the file systems, and loads the modules in the order of their names.
func prepare() error {
	for _, m := range [][2]string{{"devtmpfs", "/dev"}, {"proc", "/proc"}, {"sysfs", "/sys"}} {
		if err := os.MkdirAll(m[1], 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m[0], m[1], m[0], 0, ""); err != nil && !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("mounting %s: %w", m[1], err)
		}
	}
	modules, err := filepath.Glob("/mod/*.ko")
	if err != nil {
		return err
	}
	for _, m := range modules {
		f, err := os.Open(m)
		if err != nil {
			return err
		}
		if err := unix.FinitModule(int(f.Fd()), "", 0); err != nil {
			return fmt.Errorf("loading %s: %w", m, err)
		}
		f.Close()
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(lo)
}

// raw sets a serial port to raw mode.
func raw(fd int) error {
	t, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return err
	}
	t.Iflag, t.Oflag, t.Lflag = 0, 0, 0
	t.Cc[unix.VMIN], t.Cc[unix.VTIME] = 1, 0
	return unix.IoctlSetTermios(fd, unix.TCSETS, t)
}

func handle(words []string) error {
	switch {
	case len(words) == 3 && words[0] == "up":
		mtu, err := strconv.Atoi(words[2])
		if err != nil {
			return err
		}
		return up(words[1], mtu)
	case len(words) == 2 && words[0] == "queues":
		n, err := strconv.Atoi(words[1])
		if err != nil {
			return err
		}
		return setQueues(uint32(n))
	case len(words) == 1 && words[0] == "rebind":
		return rebind()
	}
	return fmt.Errorf("unknown command %q", words)
}

// driver is the directory of the driver of virtio network cards.
const driver = "/sys/bus/virtio/drivers/virtio_net"

// card returns the name of the network card. It waits until there is one.
func card() (string, error) {
	for range 1000 {
		if names, err := filepath.Glob(driver + "/virtio*/net/*"); err != nil || len(names) > 0 {
			return filepath.Base(names[0]), err
		}
		time.Sleep(10 * time.Millisecond)
	}
	return "", errors.New("no network card")
}

func up(address string, mtu int) error {
	name, err := card()
	if err != nil {
		return err
	}
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	addr, err := netlink.ParseAddr(address)
	if err != nil {
		return err
	}
	if err := netlink.LinkSetMTU(link, mtu); err != nil {
		return fmt.Errorf("MTU %d: %w", mtu, err)
	}
	return errors.Join(netlink.LinkSetUp(link), netlink.AddrReplace(link, addr))
}

// setQueues does what ethtool -L does, for which vishvananda/netlink has no function.
func setQueues(n uint32) error {
	name, err := card()
	if err != nil {
		return err
	}
	family, err := netlink.GenlFamilyGet("ethtool")
	if err != nil {
		return err
	}
	request := nl.NewNetlinkRequest(int(family.ID), unix.NLM_F_ACK)
	request.AddData(&nl.Genlmsg{Command: unix.ETHTOOL_MSG_CHANNELS_SET, Version: 1})
	header := nl.NewRtAttr(unix.ETHTOOL_A_CHANNELS_HEADER|unix.NLA_F_NESTED, nil)
	header.AddRtAttr(unix.ETHTOOL_A_HEADER_DEV_NAME, nl.ZeroTerminated(name))
	request.AddData(header)
	request.AddData(nl.NewRtAttr(unix.ETHTOOL_A_CHANNELS_COMBINED_COUNT, nl.Uint32Attr(n)))
	if _, err := request.Execute(unix.NETLINK_GENERIC, 0); err != nil {
		return fmt.Errorf("%d queues: %w", n, err)
	}
	return nil
}

func rebind() error {
	devices, err := filepath.Glob(driver + "/virtio*")
	if err != nil || len(devices) != 1 {
		return errors.Join(fmt.Errorf("network cards: %q", devices), err)
	}
	for _, file := range []string{"unbind", "bind"} {
		if err := os.WriteFile(filepath.Join(driver, file), []byte(filepath.Base(devices[0])), 0); err != nil {
			return err
		}
	}
	return nil
}

// serve calls a function for each connection to a TCP port.
func serve(l net.Listener, do func(c net.Conn) error) {
	for {
		c, err := l.Accept()
		if err != nil {
			log.Print("guest: ", err)
			return
		}
		go func() {
			defer c.Close()
			if err := do(c); err != nil {
				log.Print("guest: ", err)
			}
		}()
	}
}

// echo sends all data back, and then their SHA-256.
func echo(c net.Conn) error {
	sum := sha256.New()
	if _, err := io.Copy(io.MultiWriter(c, sum), c); err != nil {
		return err
	}
	_, err := c.Write(sum.Sum(nil))
	return err
}

const chunk = 128 << 10

// sink discards all data.
func sink(c net.Conn) error {
	b := make([]byte, chunk)
	for {
		if _, err := c.Read(b); err != nil {
			return nil // the connection has ended
		}
	}
}

// source sends zeros without end.
func source(c net.Conn) error {
	b := make([]byte, chunk)
	for {
		if _, err := c.Write(b); err != nil {
			return nil // the connection has ended
		}
	}
}
