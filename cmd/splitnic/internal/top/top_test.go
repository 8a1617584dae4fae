package top

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/daemon"
	"github.com/splitnic/splitnic/cmd/splitnic/internal/render"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/direct"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/iounit"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/session"
	"github.com/splitnic/splitnic/vnet"
)

// channel returns a queue that has sent tx and received rx frames of 100 bytes.
func channel(tx, rx uint64) messaging.ChannelStats {
	const frame = 100 + vnet.HdrLen
	return messaging.ChannelStats{
		TxCounters: messaging.TxCounters[uint64]{TxFrames: tx, TxBytes: frame * tx, TxNoCredit: tx / 2},
		RxCounters: messaging.RxCounters[uint64]{RxFrames: rx, RxBytes: frame * rx, RxDropped: rx / 10},
	}
}

// hostWith returns a host with queues in the session id, or without a session if id is empty.
func hostWith(name, id string, channels ...messaging.ChannelStats) render.Status {
	s := &daemon.HostStatus{Card: name, Status: host.Status{Role: "host", Netdevice: host.NetdeviceStatus{Name: "eth0"}}}
	if id != "" {
		s.IOUnit.Session, s.Traffic = id, &messaging.Stats{Channels: channels}
	}
	return render.Status{Host: s}
}

func withDirect(s render.Status, id session.DirectID, out uint64) render.Status {
	c := direct.ConnectionStatus{ID: id, Peer: "beta"}
	c.Counts.OutFrames, c.Counts.OutBytes, c.Counts.Full = out, 100*out, out/10
	s.Host.Direct.Connections = append(s.Host.Direct.Connections, c)
	return s
}

func unitWith(id string, tx, rx uint64) render.Status {
	return render.Status{Unit: &daemon.UnitStatus{Status: iounit.Status{Name: "gw1", Hosts: []iounit.HostStatus{{
		Name: "alpha", Session: id, Statistics: protocol.Statistics{TxFrames: tx, TxBytes: 100 * tx, TxVLAN: tx / 10},
		Traffic: &messaging.Stats{Channels: []messaging.ChannelStats{channel(rx, tx)}},
	}}}}}
}

var start = time.Unix(1_800_000_000, 0)

// shown returns the table of two samples that are two seconds apart.
func shown(v View, before, after []render.Status) string {
	cards := NewSample(after, start.Add(2*time.Second)).Since(NewSample(before, start))
	return "\n" + strings.Join(v.Lines(cards), "\n") + "\n"
}

func TestRates(t *testing.T) {
	latency := channel(40, 0)
	latency.Latency = true
	for _, c := range []struct {
		name          string
		before, after []render.Status
		view          View
		want          string
	}{
		{"queues and paths", []render.Status{withDirect(hostWith("sn0", "s1", channel(100, 0), channel(0, 0)), 1, 1000)},
			[]render.Status{withDirect(hostWith("sn0", "s1", channel(300, 100), latency), 1, 3000)}, View{}, `
CARD                    PATH             OUT bit/s OUT pkt/s  IN bit/s  IN pkt/s    DROP/s    WAIT/s
sn0                     all                   896k     1.12k       40k        50       105        60
                        unit queue 1           80k       100       40k        50         5        50
                        unit latency           16k        20         0         0         0        10
                        direct beta           800k        1k         0         0       100         0
`},
		{"a new session begins with 0", []render.Status{hostWith("sn0", "s1", channel(1000, 0))},
			[]render.Status{hostWith("sn0", "s2", channel(200, 0))}, View{Totals: true}, `
CARD                    PATH             OUT bit/s OUT pkt/s  IN bit/s  IN pkt/s    DROP/s    WAIT/s
sn0                     all                    80k       100         0         0         0        50
`},
		{"no session", []render.Status{hostWith("sn0", "s1", channel(1000, 0))}, []render.Status{hostWith("sn0", "")},
			View{}, `
CARD                    PATH             OUT bit/s OUT pkt/s  IN bit/s  IN pkt/s    DROP/s    WAIT/s
sn0                     all                      0         0         0         0         0         0
`},
		{"cleared meanwhile", []render.Status{hostWith("sn0", "s1", channel(1000, 0))},
			[]render.Status{hostWith("sn0", "s1", channel(10, 0))}, View{Totals: true}, `
CARD                    PATH             OUT bit/s OUT pkt/s  IN bit/s  IN pkt/s    DROP/s    WAIT/s
sn0                     all                      0         0         0         0         0         0
`},
		{"I/O unit, and a card that comes", []render.Status{unitWith("s1", 0, 0)},
			[]render.Status{unitWith("s1", 2000, 400), hostWith("sn1", "s9", channel(5, 5))}, View{}, `
CARD                    PATH             OUT bit/s OUT pkt/s  IN bit/s  IN pkt/s    DROP/s    WAIT/s
gw1/alpha               all                   800k        1k         0         0       100         0
                        queue 1               800k        1k      160k       200       100       100
sn1                     all                      -         -         -         -         -         -
                        unit queue 1             -         -         -         -         -         -
`},
		{"low and narrow", []render.Status{unitWith("s1", 0, 0)}, []render.Status{unitWith("s1", 0, 0), hostWith("b", ""),
			hostWith("c", "")}, View{Height: 3, Width: 12}, `
CARD       …
b          …
… 3 more li…
`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := shown(c.view, c.before, c.after); got != c.want {
				t.Errorf("%s\nwant%s", got, c.want)
			}
		})
	}
}

func TestSort(t *testing.T) {
	cards := []Card{
		{Row: Row{Name: "a", Rates: Rates{OutBits: 1, InFrames: 9, Dropped: 2}}},
		{Row: Row{Name: "b", Rates: Rates{OutBits: 3, InBits: 5}}},
		{Row: Row{Name: "c", Rates: Rates{OutBits: 2, InBits: 7, OutFrames: 1}}},
	}
	for order, want := range map[Order]string{ByName: "abc", ByOut: "bca", ByIn: "cba", ByPackets: "acb", ByDrops: "abc"} {
		Sort(cards, order)
		got := ""
		for _, c := range cards {
			got += c.Name
		}
		if got != want {
			t.Errorf("by %s: %s, want %s", order, got, want)
		}
	}
}

// counting returns samples of a host whose counters grow. The host ends after the third sample.
func counting() Collect {
	n := uint64(0)
	return func(context.Context) (Sample, error) {
		n++
		at := start.Add(time.Duration(n) * time.Second)
		if n > 3 {
			return NewSample(nil, at), errors.New("nobody is there")
		}
		return NewSample([]render.Status{hostWith("sn0", "s1", channel(100*n, 0)), hostWith("sn1", "")}, at), nil
	}
}

func TestPlain(t *testing.T) {
	var b strings.Builder
	if err := Plain(t.Context(), &b, counting(), View{Order: ByOut, Totals: true}, time.Millisecond, 3); err != nil {
		t.Fatal(err)
	}
	const table = `CARD                    PATH             OUT bit/s OUT pkt/s  IN bit/s  IN pkt/s    DROP/s    WAIT/s
sn0                     all                    80k       100         0         0         0        50
sn1                     all                      0         0         0         0         0         0
`
	want := table + "\n" + table + "\n" + table[:strings.Index(table, "sn0")] + "nobody is there\n"
	if b.String() != want {
		t.Errorf("%s\nwant\n%s", b.String(), want)
	}
	nobody := func(context.Context) (Sample, error) { return Sample{}, errors.New("nobody") }
	if err := Plain(t.Context(), &b, nobody, View{}, time.Hour, 1); err == nil {
		t.Error("rates of nobody")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Plain(ctx, &b, counting(), View{}, time.Hour, 0); err != nil {
		t.Error(err)
	}
}

// openTerminal returns both ends of a pseudo-terminal of this size (pts(4)).
func openTerminal(t *testing.T, columns, lines uint16) (user, program *os.File) {
	t.Helper()
	user, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { user.Close() })
	fd := int(user.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: lines, Col: columns}); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { program.Close() })
	return user, program
}

// TestScreen uses a terminal. It expects keys to change what is shown, and the terminal to be
// restored at the end.
func TestScreen(t *testing.T) {
	user, program := openTerminal(t, 60, 12)
	before, err := term.GetState(int(program.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		done <- Screen(t.Context(), program, program, counting(), View{Order: ByName}, 10*time.Millisecond)
	}()
	seen := ""
	until := func(words ...string) {
		t.Helper()
		for _, w := range words {
			for !strings.Contains(seen, w) {
				var b [4096]byte
				n, err := user.Read(b[:])
				if err != nil {
					t.Fatalf("no %q: %v in\n%q", w, err, seen)
				}
				seen += string(b[:n])
			}
			seen = seen[strings.Index(seen, w):]
		}
	}
	press := func(key string) {
		t.Helper()
		if _, err := user.WriteString(key); err != nil {
			t.Fatal(err)
		}
	}
	until(enter, "2 cards", "by name", keysText[:30], "unit queue 1", "nobody is there") // the host's process has ended
	press("o")
	until("by out")
	press("?d")
	until("by drops")
	press("q")
	if err := <-done; err != nil {
		t.Error(err)
	}
	until(leave)
	after, err := term.GetState(int(program.Fd()))
	if err != nil || *after != *before {
		t.Errorf("the terminal is left as %+v, and was %+v: %v", after, before, err)
	}
	for line := range strings.SplitSeq(seen, "\r\n") {
		if strings.Contains(line, "CARD") && strings.Contains(line, "WAIT/s") {
			t.Errorf("a line is wider than the terminal: %q", line)
		}
	}
}
