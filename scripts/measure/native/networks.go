package native

import (
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/splitnic/splitnic/scripts/measure/testbed"
)

// errLacking is wrapped by the error of a subject for which the kernel, or the machine, lacks
// something.
var errLacking = errors.New("this machine does not have it")

func lacking(err error) error {
	if err == nil {
		return nil
	}
	text := strings.Join(strings.Fields(err.Error()), " ") // one line, for a note
	return fmt.Errorf("%w: %s", errLacking, strings.TrimSuffix(text, "."))
}

// network is another way to encrypt what two machines send to each other. The machines are the host
// and the LAN, and a cable connects them.
type network struct {
	device   string // of the network, at both ends
	overhead int    // how much longer than the network's packets those on the cable can be
	// connect makes the devices. It returns the processes through which the packets go, if there are
	// any.
	connect func(ctx context.Context, b *testbed.Bed, ends [2]netEnd) ([]*process, error)
}

// netEnd is one end of a network.
type netEnd struct{ ns, cable string } // namespace, and address at the cable

const (
	cableDev = "eth0" // the device of the cable, at both ends
	lanMTU   = 1500   // of the LAN, and of all networks
)

// networks has the networks, by the names of their subjects.
var networks = map[string]network{
	wireguard:   {device: "sn0", overhead: 60, connect: kernelWireGuard},
	wireguardGo: {device: "sn0", overhead: 60, connect: userWireGuard},
	ipsec:       {device: cableDev, overhead: 56, connect: connectIPsec},
	macsec:      {device: "sn0", overhead: 32, connect: connectMACsec},
}

// join makes the cable between two namespaces, and the network.
func (n *network) join(ctx context.Context, b *testbed.Bed, host, lan string) ([]*process, error) {
	ends := [2]netEnd{{host, "10.81.0.2"}, {lan, "10.81.0.1"}}
	errs := []error{testbed.Pair(host, cableDev, lan, cableDev)}
	for _, e := range ends {
		errs = append(errs, testbed.IP(e.ns, fmt.Sprintf("link set %s mtu %d", cableDev, lanMTU+n.overhead),
			"addr add "+e.cable+"/24 dev "+cableDev))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return n.connect(ctx, b, ends)
}

func kernelWireGuard(_ context.Context, _ *testbed.Bed, ends [2]netEnd) ([]*process, error) {
	for _, e := range ends {
		if err := testbed.IP(e.ns, "link add sn0 type wireguard"); err != nil {
			return nil, lacking(err)
		}
	}
	return nil, peer(ends, func(i int) []string { return []string{"ip", "netns", "exec", ends[i].ns} })
}

// userWireGuard starts wireguard-go at each end.
func userWireGuard(ctx context.Context, b *testbed.Bed, ends [2]netEnd) (list []*process, err error) {
	program, err := exec.LookPath(wireguardGo)
	if err != nil {
		return nil, lacking(err)
	}
	for _, e := range ends {
		// It has a socket below /var/run, whose name is that of the device. The program leaves when
		// this process does.
		const script = `mount -t tmpfs tmpfs /run && export WG_PROCESS_FOREGROUND=1 || exit
			"$0" sn0 & echo $!; read -r end; kill $!; wait $!`
		p, err := start(b, "ip", "netns", "exec", e.ns, "sh", "-c", script, program)
		if err != nil {
			return nil, err
		}
		list = append(list, p)
		if err := testbed.Until(ctx, "wireguard-go", func() error {
			_, err := os.Stat(fmt.Sprintf("/proc/%d/root/run/wireguard/sn0.sock", p.pid))
			return err
		}); err != nil {
			return nil, err
		}
	}
	return list, peer(ends, func(i int) []string {
		return []string{"nsenter", "--mount", "--net", "--target", strconv.Itoa(list[i].pid)}
	})
}

// peer makes the two ends of WireGuard peers of each other. inside returns the command that executes
// another one where the device of an end is.
func peer(ends [2]netEnd, inside func(i int) []string) error {
	var keys [2]*ecdh.PrivateKey
	for i := range keys {
		var err error
		if keys[i], err = ecdh.X25519().GenerateKey(rand.Reader); err != nil {
			return err
		}
	}
	if _, err := exec.LookPath("wg"); err != nil {
		return lacking(err)
	}
	text := base64.StdEncoding.EncodeToString
	for i, e := range ends {
		args := append(inside(i), "wg", "set", "sn0", "listen-port", "51820", "private-key", "/dev/stdin",
			"peer", text(keys[1-i].PublicKey().Bytes()), "endpoint", ends[1-i].cable+":51820", "allowed-ips", "0.0.0.0/0")
		c := exec.Command(args[0], args[1:]...)
		c.Stdin = strings.NewReader(text(keys[i].Bytes()))
		if out, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("%q: %w: %s", args, err, out)
		}
		if err := testbed.IP(e.ns, fmt.Sprintf("link set sn0 mtu %d up", lanMTU)); err != nil {
			return err
		}
	}
	return nil
}

// key returns n random bytes in hexadecimal digits.
func key(n int) string {
	b := make([]byte, n)
	rand.Read(b) // never fails
	return fmt.Sprintf("%x", b)
}

// connectIPsec makes a tunnel of ESP with AES-GCM, without a device of its own.
func connectIPsec(_ context.Context, _ *testbed.Bed, ends [2]netEnd) ([]*process, error) {
	keys := [2]string{key(20), key(20)} // with the salt of 4 bytes
	way := func(from int) string { return "src " + ends[from].cable + " dst " + ends[1-from].cable + " proto esp" }
	for i, e := range ends {
		for from := range ends {
			if err := testbed.IP(e.ns, fmt.Sprintf(
				"xfrm state add %s spi %d reqid 1 mode tunnel replay-window 32 aead rfc4106(gcm(aes)) 0x%s 128",
				way(from), 78+from, keys[from])); err != nil {
				return nil, lacking(err)
			}
		}
		const between = "src 10.78.0.0/15 dst 10.78.0.0/15" // the addresses of both stations, and of the flows
		if err := testbed.IP(e.ns, "xfrm policy add "+between+" dir out tmpl "+way(i)+" reqid 1 mode tunnel",
			"xfrm policy add "+between+" dir in tmpl "+way(1-i)+" reqid 1 mode tunnel"); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// connectMACsec makes devices above the cable, with AES-GCM.
func connectMACsec(_ context.Context, _ *testbed.Bed, ends [2]netEnd) ([]*process, error) {
	keys := [2]string{key(16), key(16)}
	for i, e := range ends {
		if err := testbed.IP(e.ns, "link add link "+cableDev+" sn0 type macsec encrypt on",
			fmt.Sprintf("macsec add sn0 tx sa 0 pn 1 on key %02x %s", i, keys[i])); err != nil {
			return nil, lacking(err)
		}
	}
	for i, e := range ends {
		l, err := testbed.Link(ends[1-i].ns, cableDev)
		if err != nil {
			return nil, err
		}
		receive := fmt.Sprintf("macsec add sn0 rx port 1 address %s", l.Attrs().HardwareAddr)
		if err := testbed.IP(e.ns, receive, fmt.Sprintf("%s sa 0 pn 1 on key %02x %s", receive, 1-i, keys[1-i]),
			fmt.Sprintf("link set sn0 mtu %d up", lanMTU)); err != nil {
			return nil, err
		}
	}
	return nil, nil
}
