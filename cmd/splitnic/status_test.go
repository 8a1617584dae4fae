package main

import (
	"context"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/daemon"
	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
	"github.com/splitnic/splitnic/cmd/splitnic/internal/render"
	"github.com/splitnic/splitnic/cmd/splitnic/internal/top"
	"github.com/splitnic/splitnic/internal/statussock"
	"github.com/splitnic/splitnic/protocol"
)

// pages records the writes of a command, and interrupts the command after the write number most.
type pages struct {
	all  []string
	most int
	stop context.CancelFunc
}

func (p *pages) Write(b []byte) (int, error) {
	p.all = append(p.all, string(b))
	if len(p.all) == p.most {
		p.stop()
	}
	return len(b), nil
}

// TestStatusWatch watches two processes, of which one ends, until the command is interrupted.
func TestStatusWatch(t *testing.T) {
	dir := t.TempDir()
	paths := []string{filepath.Join(dir, "a.sock"), filepath.Join(dir, "b.sock")}
	for _, args := range [][]string{nil, {"--json"}, {"-v"}} {
		var servers []*statussock.Server
		for _, path := range paths {
			s, err := statussock.Serve(path, func() any { return map[string]string{"role": "host", "name": "alpha"} })
			if err != nil {
				t.Fatal(err)
			}
			servers = append(servers, s)
		}
		ctx, cancel := context.WithCancel(t.Context())
		p := &pages{most: 4, stop: cancel}
		root := rootCommand()
		root.SetArgs(append(append([]string{"status", "--watch=1ms"}, args...), paths...))
		root.SetOut(writer(func(b []byte) (int, error) {
			if len(p.all) == 1 {
				servers[1].Close()
			}
			return p.Write(b)
		}))
		var complaints strings.Builder
		root.SetErr(&complaints)
		if err := root.ExecuteContext(ctx); err != nil {
			t.Errorf("%q: %v", args, err)
		}
		servers[0].Close()
		if len(p.all) != p.most {
			t.Errorf("%q: %d pages, want %d", args, len(p.all), p.most)
			continue
		}
		if n := strings.Count(p.all[0], "alpha"); n != 2 {
			t.Errorf("%q: the first page has %d hosts:\n%s", args, n, p.all[0])
		}
		last := p.all[p.most-1]
		said := last
		if args != nil && args[0] == "--json" {
			said = complaints.String() // standard output has JSON only
		}
		if strings.Count(last, "alpha") != 1 || !strings.Contains(said, "no process serves "+paths[1]) ||
			strings.Contains(last, clearScreen) {
			t.Errorf("%q: the last page is\n%q", args, last)
		}
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }

func TestStatusMistakes(t *testing.T) {
	for line, want := range map[string]string{
		"status --watch=0s":     "--watch 0s: must be above 0",
		"status --watch=-2s":    "--watch -2s: must be above 0",
		"status --watch 5s sn0": "--watch 5s: must be --watch=5s",
		"status --watch=often":  `--watch: "often" must be a time with its unit, such as 5s`,
		"status --schema=maybe": `"maybe" must be yes or no`,
	} {
		if err := execute(t, strings.Fields(line)...); exit.Status(err) != exit.Usage ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
	}
}

// TestDetailsAreWords prints everything about endpoints all of whose numbers are 1. It expects nouns in
// the singular, and the name of the network card.
func TestDetailsAreWords(t *testing.T) {
	var host daemon.HostStatus
	var unit daemon.UnitStatus
	fill(reflect.ValueOf(&host).Elem())
	fill(reflect.ValueOf(&unit).Elem())
	unit.LAN.Error, host.Netdevice.Since = "", time.Now()
	more := host
	more.State, more.Filter = "connected", &protocol.ReceiveFilter{
		Multicast: host.Filter.Multicast, Unicast: host.Filter.Unicast,
	}
	var out strings.Builder
	if err := render.Details(&out, []render.Status{{Host: &host}, {Host: &more}, {Unit: &unit}}); err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`(?m)^  LAN +x: up, mtu 1,`).MatchString(out.String()) {
		t.Errorf("the network card has no name:\n%s", &out)
	}
	for _, wrong := range regexp.MustCompile(`.*\b1 (?:[a-z-]+ |I/O )?[a-z-]+s\b.*`).FindAllString(out.String(), -1) {
		if !strings.Contains(wrong, " bytes") && !strings.Contains(wrong, "address") && !strings.Contains(wrong, "dropped") {
			t.Errorf("plural: %s", wrong)
		}
	}
	view := top.View{Height: 2}
	cards := []top.Card{{}, {}}
	if lines := view.Lines(cards); lines[1] != "… 2 more lines" {
		t.Errorf("%q", lines)
	}
}
