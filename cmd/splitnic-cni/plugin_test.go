package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"

	"github.com/splitnic/splitnic/cmd/internal/cards"
	"github.com/splitnic/splitnic/cmd/internal/cards/cardstest"
	"github.com/splitnic/splitnic/internal/statussock"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/protocol"
)

// makeCard makes a card without a network behind it. A card with several queues does not
// connect. A card with an MTU of 1400, or for a namespace "missing", cannot be made.
func makeCard(spec *cards.Spec) (cardstest.Card, error) {
	c := cardstest.Card{State: cards.Connected, Carrier: true}
	switch {
	case spec.MTU == 1400:
		return c, errors.New("out of paper")
	case strings.HasSuffix(spec.NetNS, "missing"):
		return c, &cards.FieldError{Field: "netns", Problem: "there is none"}
	case spec.Queues > 1:
		return cardstest.Card{State: cards.Connecting}, nil
	}
	return c, nil
}

// request is a request of a runtime. fields are those of the network configuration besides the
// common ones.
type request struct {
	command func(context.Context, *skel.CmdArgs) error
	fields  map[string]any
	args    string // CNI_ARGS
	netns   string
}

func (r request) do(t *testing.T, sock string) error {
	t.Helper()
	config := map[string]any{"cniVersion": "1.1.0", "name": "pods", "type": program, "socket": sock}
	maps.Copy(config, r.fields)
	text, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	if r.netns == "" {
		r.netns = "/no/such/namespace"
	}
	return r.command(t.Context(), &skel.CmdArgs{
		ContainerID: "0123456789abcdef", Netns: r.netns, IfName: "eth0", Args: r.args, Path: t.TempDir(), StdinData: text,
	})
}

// podCard is the attachment of the container in all requests.
var podCard = attachment{"pods", "0123456789abcdef", "eth0"}

// result is a possible result of ADD.
var result = map[string]any{"cniVersion": "1.1.0", "interfaces": []any{}}

// TestErrors makes requests that fail. It expects each error to have its code, and to be
// documented.
func TestErrors(t *testing.T) {
	free, _ := cardstest.Serve(t, makeCard)
	full, set := cardstest.Serve(t, makeCard)
	waiting, connecting := cardstest.Serve(t, makeCard)
	there, connected := cardstest.Serve(t, makeCard)
	for _, add := range []struct {
		to   *cards.Set
		spec cards.Spec
	}{
		{set, cards.Spec{Name: "a"}},
		{set, cards.Spec{Name: "b"}},
		{connecting, cards.Spec{Name: podCard.card(), Netdevice: "eth0", Queues: 2}},
		{connected, cards.Spec{Name: podCard.card(), Netdevice: "eth0"}},
	} {
		if _, _, err := add.to.Add(t.Context(), add.spec); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	nobody, silent := filepath.Join(dir, "no.sock"), filepath.Join(dir, "silent.sock")
	host, stuck := filepath.Join(dir, "host.sock"), filepath.Join(dir, "stuck.sock")
	ln, err := net.Listen("unix", silent)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	s, err := statussock.Serve(host, func() any { return map[string]string{"role": "host"} })
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	defer serveStuck(t, stuck)()
	type fields = map[string]any
	t.Setenv("CNI_PATH", dir)
	withdrawn := fields{"vlan": 5, "prevResult": result}
	for name, x := range map[string]struct {
		sock string
		request
		code uint
		word string
	}{
		"no time":                {free, request{command: add, fields: fields{"timeout": "soon"}}, 7, `"soon"`},
		"short time":             {free, request{command: add, fields: fields{"timeout": "1ms"}}, 7, "1s"},
		"relative socket":        {free, request{command: add, fields: fields{"socket": "agent.sock"}}, 7, "agent.sock"},
		"type of a field":        {free, request{command: add, fields: fields{"mtu": "1500"}}, 7, "mtu"},
		"unknown field":          {free, request{command: add, fields: fields{"mtuu": 1500}}, 7, "mtuu"},
		"STATUS, unknown field":  {free, request{command: status, fields: fields{"MTU": 1500}}, 7, "MTU"},
		"no VLAN":                {free, request{command: add, fields: fields{"vlan": 4095}}, 7, "vlan: 4095"},
		"CHECK, VLAN withdrawn":  {there, request{command: check, fields: withdrawn}, 11, "VLAN 5"},
		"CHECK of nothing":       {free, request{command: check}, 7, "prevResult"},
		"GC of everything":       {free, request{command: collect}, 7, "valid-attachments"},
		"arguments":              {free, request{command: add, args: "COLOUR=red"}, 4, "COLOUR"},
		"ADD without agent":      {nobody, request{command: add}, 11, nobody},
		"DEL without agent":      {nobody, request{command: del}, 11, nobody},
		"GC without agent":       {nobody, request{command: collect, fields: fields{validKey: nil}}, 11, nobody},
		"STATUS without agent":   {nobody, request{command: status}, 51, nobody},
		"silent agent":           {silent, request{command: add, fields: fields{"timeout": "1s"}}, 11, silent},
		"socket of a host":       {host, request{command: add}, 7, host},
		"STATUS of a host":       {host, request{command: status}, 7, host},
		"STATUS of a full agent": {full, request{command: status}, 50, "--max-cards"},
		"field of the card":      {free, request{command: add, fields: fields{"mtu": 10}}, 7, "mtu: 10"},
		"full agent":             {full, request{command: add}, 11, "--max-cards"},
		"broken card":            {free, request{command: add, fields: fields{"mtu": 1400}}, 101, "out of paper"},
		"namespace":              {free, request{command: add, netns: "/missing"}, 8, "netns"},
		"no carrier":             {free, request{command: add}, 11, "/no/such/namespace"},
		"CHECK of no card":       {free, request{command: check, fields: fields{"prevResult": result}}, 3, podCard.card()},
		"CHECK without carrier":  {waiting, request{command: check, fields: fields{"prevResult": result}}, 11, "connecting"},
		"IPAM plugin":            {free, request{command: status, fields: fields{"ipam": fields{"type": "none"}}}, 999, "none"},
		"left behind":            {stuck, request{command: add}, 101, "stuck"},
	} {
		t.Run(name, func(t *testing.T) {
			err := x.do(t, x.sock)
			var e *types.Error
			if !errors.As(err, &e) {
				t.Fatalf("%v is no error of CNI", err)
			}
			if e.Code != x.code || !strings.Contains(e.Error(), x.word) {
				t.Errorf("code %d instead of %d, or no %q: %v", e.Code, x.code, x.word, e)
			}
			testenv.Explained(t, e.Error())
		})
	}
	if list, _, err := cards.Client(free).List(t.Context()); err != nil || len(list.Cards) > 0 {
		t.Errorf("ADD that failed has left %+v, %v", list, err)
	}
}

// serveStuck serves an agent that has no cards, and can neither make nor remove one.
func serveStuck(t *testing.T, sock string) (stop func()) {
	t.Helper()
	s, err := statussock.ServeAPI(sock, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		f := cards.Failure{Code: cards.Broken, Error: "stuck"}
		status := http.StatusInternalServerError
		if r.Method == http.MethodGet {
			f.Code, status = cards.Unknown, http.StatusNotFound
		}
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(f)
	}), func() any { return 1 })
	if err != nil {
		t.Fatal(err)
	}
	return func() { s.Close() }
}

// TestRemove removes cards: with DEL, also one that does not exist; with GC, those attachments
// of the network that are not valid.
func TestRemove(t *testing.T) {
	sock, set := cardstest.Serve(t, makeCard)
	for range 2 {
		if err := (request{command: del, fields: map[string]any{"later": 1}}).do(t, sock); err != nil {
			t.Error(err)
		}
	}
	other := attachment{"other", podCard.container, podCard.ifname}
	for _, a := range []attachment{podCard, other} {
		if _, _, err := set.Add(t.Context(), cards.Spec{Name: a.card(), Netdevice: "eth0", Owner: a.owner()}); err != nil {
			t.Fatal(err)
		}
	}
	left := func(want ...attachment) {
		t.Helper()
		var got []attachment
		for _, i := range set.List() {
			a, _ := attachmentOwning(i.Spec.Owner)
			got = append(got, a)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%v and not %v is left", got, want)
		}
	}
	collects := func(valid ...types.GCAttachment) {
		t.Helper()
		if err := (request{command: collect, fields: map[string]any{validKey: valid}}).do(t, sock); err != nil {
			t.Error(err)
		}
	}
	collects(types.GCAttachment{ContainerID: podCard.container, IfName: podCard.ifname})
	if len(set.List()) != 2 {
		t.Errorf("GC has removed what is valid: %+v", set.List())
	}
	collects(types.GCAttachment{ContainerID: podCard.container, IfName: "eth1"})
	left(other)
	if err := (request{command: del}).do(t, sock); err != nil {
		t.Error(err)
	}
	left(other)
}

// TestCollectForeign has GC find cards that look like those of the network, but that somebody else
// has made. They must stay.
func TestCollectForeign(t *testing.T) {
	sock, set := cardstest.Serve(t, makeCard)
	for _, prefix := range []string{"cnx", "cni2", "xcni", "CNI", ""} {
		owner := strings.Join([]string{prefix, podCard.network, podCard.container, "eth9"}, "/")
		if _, _, err := set.Add(t.Context(), cards.Spec{Name: "foreign", Netdevice: "eth0", Owner: owner}); err != nil {
			t.Fatal(err)
		}
		if err := (request{command: collect, fields: map[string]any{validKey: []any{}}}).do(t, sock); err != nil {
			t.Error(err)
		}
		if _, there := set.Get("foreign"); !there {
			t.Errorf("GC has removed the card of %s", owner)
		}
		if err := set.Del(t.Context(), "foreign"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSpec expects the request to have the MAC address of the runtime configuration, otherwise
// of CNI_ARGS, otherwise of the network configuration, and all fields of the latter.
func TestSpec(t *testing.T) {
	const full = `{"name": "pods", "mac": "02:00:00:00:00:01", "mtu": 1500, "queues": 2, "iounits": ["u"], "device": "d",
		"key": "/k", "cert": "/c", "runtimeConfig": {"mac": %q}}`
	for _, x := range []struct{ runtime, args, want string }{
		{"", "", "02:00:00:00:00:01"},
		{"", "IgnoreUnknown=1;K8S_POD_NAME=web;MAC=02:00:00:00:00:02", "02:00:00:00:00:02"},
		{"02:00:00:00:00:03", "MAC=02:00:00:00:00:02", "02:00:00:00:00:03"},
	} {
		args := &skel.CmdArgs{
			ContainerID: podCard.container, Netns: "/run/netns/pod", IfName: "eth0", Args: x.args,
			StdinData: []byte(strings.Replace(full, "%q", `"`+x.runtime+`"`, 1)),
		}
		c, err := load(args)
		if err != nil {
			t.Fatal(err)
		}
		got, err := c.spec(attachmentOf(c, args), args)
		want := &cards.Spec{
			Name: podCard.card(), Owner: "cni/pods/0123456789abcdef/eth0", Netdevice: "eth0", NetNS: "/run/netns/pod",
			MAC: x.want, MTU: 1500, Queues: 2, IOUnits: []string{"u"}, Device: "d", Key: "/k", Cert: "/c",
			Transient: true,
		}
		if err != nil || got.Differs(want) != "" {
			t.Errorf("%+v, %v, and not %+v", got, err, want)
		}
	}
}

// TestSpecVLAN expects the netdevice of a card to have the name of the trunk if the interface of
// the container is a VLAN device above it.
func TestSpecVLAN(t *testing.T) {
	for vlan, want := range map[int]string{0: "eth0", 10: podCard.trunk()} {
		args := &skel.CmdArgs{
			ContainerID: podCard.container, IfName: podCard.ifname,
			StdinData: fmt.Appendf(nil, `{"name": "pods", "vlan": %d}`, vlan),
		}
		c, err := load(args)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := c.spec(attachmentOf(c, args), args); err != nil || got.Netdevice != want {
			t.Errorf("VLAN %d: %+v, %v, and not %s", vlan, got, err, want)
		}
	}
}

// TestNoVLANDevice makes a VLAN device in a namespace that does not exist.
func TestNoVLANDevice(t *testing.T) {
	c := &config{VLAN: 10}
	args := &skel.CmdArgs{Netns: "/no/such/namespace", IfName: podCard.ifname}
	_, err := c.vlanDevice(podCard, args, &netlink.LinkAttrs{Name: podCard.trunk()})
	var e *types.Error
	if !errors.As(err, &e) || e.Code != errCard {
		t.Fatal(err)
	}
	testenv.Explained(t, e.Error())
}

// TestGranted waits until the I/O unit has reported which VLANs it sends.
func TestGranted(t *testing.T) {
	ten := protocol.VLANSet{}
	ten.Add(10)
	for name, x := range map[string]struct {
		status  cards.Status
		waits   bool   // until the timeout
		refused string // part of the error; empty: the I/O unit sends the VLAN
	}{
		"sent":    {cards.Status{VLANs: &ten, Refused: &cards.Refusal{What: "VLANs", Wanted: "11"}}, false, ""},
		"refused": {cards.Status{Refused: &cards.Refusal{What: "VLANs", Reason: "the I/O unit: no"}}, false, ": no"},
		"silence": {cards.Status{Error: "nobody", Refused: &cards.Refusal{What: "MAC address"}}, true, "answered"},
	} {
		t.Run(name, func(t *testing.T) {
			card := func(*cards.Spec) (cardstest.Card, error) { return cardstest.Card(x.status), nil }
			sock, set := cardstest.Serve(t, card)
			if _, _, err := set.Add(t.Context(), cards.Spec{Name: podCard.card(), Netdevice: "eth0"}); err != nil {
				t.Fatal(err)
			}
			c := &config{Socket: sock, VLAN: 10}
			ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
			defer cancel()
			if x.waits {
				cancel()
			}
			err := c.granted(ctx, podCard)
			if (err == nil) != (x.refused == "") || err != nil && !strings.Contains(err.Error(), x.refused) {
				t.Errorf("%v instead of %q", err, x.refused)
			}
			if err != nil {
				testenv.Explained(t, err.Error())
			}
		})
	}
}

// TestCardNames expects valid names of cards and trunks, which differ for different attachments.
func TestCardNames(t *testing.T) {
	names, trunks := map[string]attachment{}, map[string]bool{}
	long := strings.Repeat("x", 200)
	for _, network := range []string{"a", "b", long} {
		for _, container := range []string{"c", "0123456789abcdef", "0123456789abcdeg", long, long + "y"} {
			for _, ifname := range []string{"eth0", "eth1", "çé-@§"} {
				a := attachment{network, container, ifname}
				spec, err := cards.Spec{Name: a.card(), Owner: a.owner(), Netdevice: ifname}.Complete()
				if err != nil {
					t.Errorf("%v: %v", a, err)
				}
				_, err = cards.Spec{Name: a.card(), Netdevice: a.trunk()}.Complete()
				if err != nil || trunks[a.trunk()] {
					t.Errorf("%v has the netdevice %s: %v", a, a.trunk(), err)
				}
				trunks[a.trunk()] = true
				if other, used := names[spec.Name]; used {
					t.Errorf("%v and %v have the card %s", a, other, spec.Name)
				}
				names[spec.Name] = a
				if got, ok := attachmentOwning(a.owner()); !ok || got != a {
					t.Errorf("%s is the owner of %v, and not of %v", a.owner(), got, a)
				}
			}
		}
	}
	for _, owner := range []string{
		"", "me", "cni/a/b", "cni/a/b/c/d", "x/a/b/c", "cni2/a/b/c", "xcni/a/b/c", "CNI/a/b/c", "/a/b/c",
	} {
		if a, ok := attachmentOwning(owner); ok {
			t.Errorf("%q is taken for the owner of %v", owner, a)
		}
	}
}

// FuzzLoad reads configurations. It expects an invalid one to be an error of CNI.
func FuzzLoad(f *testing.F) {
	for _, s := range []string{
		`{"cniVersion":"1.1.0","name":"pods","type":"splitnic-cni","ipam":{"type":"host-local"},"timeout":"5s"}`,
		`{"name":"pods","mtu":"x"}`, `{"name":"pods","prevResult":{"interfaces":[{"name":"eth0"}]}}`, `[]`, `{} {}`, "",
		`{"cni.dev/valid-attachments":[{"containerID":"a","ifname":"eth0"}],"runtimeConfig":{"mac":"x"}}`,
		`{"cniVersion":"0.3.1","prevResult":{"cniVersion":"0.3.1","ips":[{"version":"4","address":"10.0.0.1/8"}]}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := load(&skel.CmdArgs{StdinData: text})
		if err == nil {
			_, err = c.previous()
		}
		var e *types.Error
		if err != nil && (!errors.As(err, &e) || e.Code != types.ErrInvalidNetworkConfig) {
			t.Errorf("%v", err)
		}
	})
}

// TestStuckIPAM runs DEL with an IPAM plugin that does not answer. It expects an error after the
// timeout.
func TestStuckIPAM(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "stuck"), []byte("#!/bin/sh\nexec sleep 100\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("CNI_PATH", dir)
	sock, _ := cardstest.Serve(t, makeCard)
	began := time.Now()
	err := request{
		command: del, fields: map[string]any{"timeout": "3s", "ipam": map[string]any{"type": "stuck"}},
	}.do(t, sock)
	var e *types.Error
	if !errors.As(err, &e) || !strings.Contains(e.Error(), "stuck: no answer within 3s") {
		t.Errorf("%v", err)
	}
	if took := time.Since(began); took > testenv.Patience {
		t.Errorf("DEL takes %v", took)
	}
}

// TestCollectNamesAll has GC fail for two cards. It expects one CNI error that names both,
// because skel reports only the first CNI error.
func TestCollectNamesAll(t *testing.T) {
	sock := filepath.Join(t.TempDir(), "agent.sock")
	var list cards.List
	for _, container := range []string{"aaaaaaaaaaaa", "bbbbbbbbbbbb"} {
		a := attachment{"pods", container, "eth0"}
		list.Cards = append(list.Cards, cards.Info{Spec: cards.Spec{Name: a.card(), Owner: a.owner()}})
	}
	s, err := statussock.ServeAPI(sock, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodGet {
			_ = json.NewEncoder(w).Encode(list)
			return
		}
		w.WriteHeader(http.StatusInternalServerError)
		_ = json.NewEncoder(w).Encode(cards.Failure{Code: cards.Broken, Error: "stuck"})
	}), func() any { return 1 })
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	err = request{command: collect, fields: map[string]any{validKey: []any{}}}.do(t, sock)
	var e *types.Error
	if !errors.As(err, &e) || e.Code != errCard || !strings.Contains(e.Msg, "aaaaaaaaaaaa") ||
		!strings.Contains(e.Msg, "bbbbbbbbbbbb") {
		t.Errorf("%v", e)
	}
}

// TestUndo expects the steps of a request that has failed to be undone, the last one first, also when the
// runtime waits no longer, and none of one that has not.
func TestUndo(t *testing.T) {
	var undone []int
	var made undo
	for i := range 3 {
		made = append(made, func(ctx context.Context) error {
			undone = append(undone, i)
			return ctx.Err()
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := made.unless(ctx, nil); err != nil || undone != nil {
		t.Errorf("%v: undone are %v", err, undone)
	}
	why := errors.New("out of paper")
	if err := made.unless(ctx, why); !errors.Is(err, why) || !slices.Equal(undone, []int{2, 1, 0}) {
		t.Errorf("%v: undone are %v", err, undone)
	}
}

// TestMerge adds an interface with an address to the result of other plugins. The address must be that of the
// same interface in the whole list.
func TestMerge(t *testing.T) {
	at := func(i int) *current.IPConfig { return &current.IPConfig{Interface: &i} }
	before := &current.Result{
		Interfaces: []*current.Interface{{Name: "lo"}, {Name: "eth0"}}, IPs: []*current.IPConfig{at(1)},
	}
	own := &current.Result{Interfaces: []*current.Interface{{Name: "net1"}}, IPs: []*current.IPConfig{at(0)}}
	all := merge(before, own)
	var names []string
	for _, ip := range all.IPs {
		names = append(names, all.Interfaces[*ip.Interface].Name)
	}
	if !slices.Equal(names, []string{"eth0", "net1"}) {
		t.Errorf("the addresses are those of %q", names)
	}
}
