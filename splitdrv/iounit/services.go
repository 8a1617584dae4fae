package iounit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/limit"
	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/capture"
	"github.com/splitnic/splitnic/splitdrv/iounit/policy"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/vnet"
)

var (
	// errMalformed is wrapped by errors about a request's data.
	errMalformed = errors.New("malformed request")
	// errNoService is about a request that there is no service for.
	errNoService = errors.New("no such service")
)

// services carry out what a host wants of its LAN interface. All of it ends
// with the interface. The fields behind mu are one state: a request, a new policy
// and a change of the network card each judge several of them together. There is a method
// for each request.
type services struct {
	host   *host
	shared *common
	port   lan.Interface
	ports  []*policed
	conn   *messaging.Conn // set before it is started
	offers vnet.Offloads   // the most that the host can have
	rules  atomic.Pointer[rules]
	lines  limit.Log // that the host causes
	tells  *announcer
	refuse *refusals // why frames to the LAN are dropped

	mu       sync.Mutex   // guards what follows
	policy   *policy.Host // what it may do; not changed, only replaced
	now      settings
	account                      // of the rates that it may have
	begun    settings            // as they were when the session began
	wish     protocol.VLANSet    // of the host; now.vlans are those of them that it may have
	mtu      int                 // in force
	card     int                 // the network card's MTU
	here     bool                // the host has said that its netdevice is up
	wanted   int                 // MTU that the host asked for, 0 if it did not
	cleared  protocol.Statistics // as the counters were then
	complain string              // what was refused last
	link     bool                // the LAN's is up
}

// settings are what a host can change.
type settings struct {
	mac    protocol.MAC
	filter protocol.ReceiveFilter
	vlans  protocol.VLANSet
	up     bool
}

// common is what the services of all hosts have in common.
type common struct {
	addresses *addresses
	direct    *directing // nil where there are no direct connections
	accounts  accounts
	captures  capture.Point
}

// newServices puts a host's LAN interface under the rules.
func newServices(h *host, c *common, port lan.Interface, mac protocol.MAC, mtu, card int) *services {
	s := &services{
		host: h, shared: c, policy: h.policy, port: port, offers: port.Offloads(), mtu: mtu, card: card,
		now:  settings{mac: mac, filter: protocol.ReceiveFilter{AllMulti: true}, vlans: h.policy.VLANs, up: true},
		wish: protocol.AllVLANs(), refuse: newRefusals(),
	}
	s.begun = s.now
	s.begun.vlans = s.wish
	s.tells = newAnnouncer(h, c.addresses, port, &s.rules, &s.lines)
	s.account = c.accounts.take(h.payer())
	s.account.limit(h.policy)
	s.publish()
	queues := port.Queues()
	drops := c.captures.Path(fmt.Sprintf("host %s dropped", h.hello.Name),
		"what the policy keeps from the LAN; key "+h.peer().String())
	markers := newMarkers(len(queues), func() bool { return h.seen.Load() != nil }, func() { s.conn.Unhold() })
	for i, q := range queues {
		urgent := h.hasLatency() && i == len(queues)-1
		s.ports = append(s.ports, &policed{queue: q, rules: &s.rules, taken: &c.addresses.taken, urgent: urgent,
			refused: s.refuse, drops: drops, number: i, markers: markers, flows: c.direct.sampler(h)})
	}
	return s
}

// leave keeps what the session has overdrawn, when no frame passes any more.
func (s *services) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shared.accounts.put(s.host.payer(), s.account)
}

// publish makes the settings the rules that frames are judged by.
func (s *services) publish() {
	f := s.now.filter
	r := &rules{
		mac: s.now.mac, own: s.host.own, further: slices.Clone(f.Unicast), host: s.policy,
		groups: slices.Clone(f.Multicast), every: f.AllMulti || f.Promisc, receive: s.now.vlans,
		mtu: s.mtu, card: s.card, tx: s.tx, rx: s.rx, toGroups: s.toGroups,
	}
	slices.SortFunc(r.groups, func(a, b protocol.Group) int { return slices.Compare(a[:], b[:]) })
	if f.Promisc {
		r.receive = s.policy.VLANs
	}
	s.rules.Store(r)
	s.direct()
}

// direct says what direct connections depend on. The caller holds s.mu.
func (s *services) direct() {
	s.shared.direct.changed(s.host, portFacts{
		macs: append([]protocol.MAC{s.now.mac}, s.now.filter.Unicast...), vlans: s.now.vlans, mtu: s.mtu,
		offloads: s.port.Offloads(), up: s.now.up, link: s.link,
		promisc: s.now.filter.Promisc && !s.port.Floods(),
	})
}

// linkIs says whether the LAN's link is up.
func (s *services) linkIs(up bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.link = up
	s.direct()
}

// answer is messaging.Config.OnRequest.
func (s *services) answer(t protocol.CfgType, data []byte) (protocol.CfgStatus, []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	reply, err := s.handle(t, data)
	if err == nil {
		s.host.log.Debug("host's request", "about", t, "bytes", len(data))
		return protocol.CfgOK, reply
	}
	if text := err.Error(); text != s.complain { // once, however often it is tried
		s.complain = text
		s.lines.Log(s.host.log, slog.LevelWarn, "host's request refused", "about", t, "error", err)
	}
	return statusOf(err), nil
}

// statusOf translates an error for the host.
func statusOf(err error) protocol.CfgStatus {
	switch {
	case errors.Is(err, errMalformed):
		return protocol.CfgInvalid
	case errors.Is(err, errDenied), errors.Is(err, lan.ErrInUse):
		return protocol.CfgDenied
	case errors.Is(err, errNoService), errors.Is(err, lan.ErrUnsupported):
		return protocol.CfgUnsupported
	default:
		return protocol.CfgFailed
	}
}

// handle carries out one request and returns what is in force then. Without
// data, requests that set something only ask.
func (s *services) handle(t protocol.CfgType, data []byte) ([]byte, error) {
	switch t {
	case protocol.CfgMAC:
		err := set(data, protocol.DecodeMAC, s.setMAC)
		return protocol.AppendMAC(nil, s.now.mac), err
	case protocol.CfgMTU:
		err := set(data, protocol.DecodeMTU, s.setMTU)
		return protocol.AppendMTU(nil, s.mtu), err
	case protocol.CfgLinkState:
		err := set(data, protocol.DecodeLinkState, func(l protocol.LinkState) error { return s.setUp(l.Up) })
		if err != nil {
			return nil, err
		}
		link, err := s.port.State()
		return protocol.AppendLinkState(nil, protocol.LinkState{Up: link.Up, Speed: uint32(link.Speed)}), err
	case protocol.CfgFilter:
		err := set(data, protocol.DecodeReceiveFilter, s.setFilter)
		return protocol.AppendReceiveFilter(nil, s.now.filter), err
	case protocol.CfgVLAN:
		err := set(data, protocol.DecodeVLANSet, s.setVLANs)
		return protocol.AppendVLANSet(nil, s.now.vlans), err
	case protocol.CfgOffloads:
		err := set(data, protocol.DecodeOffloads, s.setOffloads)
		return protocol.AppendOffloads(nil, s.port.Offloads()), err
	case protocol.CfgStatsRead, protocol.CfgStatsClear, protocol.CfgReset:
		if len(data) != 0 {
			return nil, fmt.Errorf("%w: %d bytes of data, must be none", errMalformed, len(data))
		}
		return s.act(t)
	default:
		return nil, fmt.Errorf("%w: %v", errNoService, t)
	}
}

// act carries out a request that has no data.
func (s *services) act(t protocol.CfgType) ([]byte, error) {
	switch t {
	case protocol.CfgStatsRead:
		return protocol.AppendStatistics(nil, s.reported().Minus(s.cleared)), nil
	case protocol.CfgStatsClear:
		total := s.reported()
		since := total.Minus(s.cleared)
		s.cleared = total
		return protocol.AppendStatistics(nil, since), nil
	default: // protocol.CfgReset
		return nil, s.reset()
	}
}

// set decodes data and carries it out. Without data it does nothing.
func set[T any](data []byte, decode func([]byte) (T, error), do func(T) error) error {
	if len(data) == 0 {
		return nil
	}
	v, err := decode(data)
	if err != nil {
		return fmt.Errorf("%w: %w", errMalformed, err)
	}
	return do(v)
}

func (s *services) setMAC(mac protocol.MAC) error {
	if mac == s.now.mac {
		return nil
	}
	if err := s.mayUse(mac); err != nil {
		return err
	}
	// Both until it is sure which: nobody else gets the old one meanwhile.
	if err := s.shared.addresses.claim(s.host, mac, append(slices.Clone(s.now.filter.Unicast), s.now.mac)); err != nil {
		return err
	}
	if err := s.port.SetMAC(net.HardwareAddr(mac[:])); err != nil {
		return errors.Join(err, s.shared.addresses.claim(s.host, s.now.mac, s.now.filter.Unicast))
	}
	s.now.mac = mac
	s.publish()
	s.lines.Log(s.host.log, slog.LevelInfo, "host changed its address", "mac", mac)
	if s.here {
		s.tells.now()
	}
	return s.shared.addresses.claim(s.host, mac, s.now.filter.Unicast)
}

// mayUse refuses an address that the policy does not give the host.
func (s *services) mayUse(mac protocol.MAC) error { return mayUse(s.policy, mac, s.host.own) }

func (s *services) setMTU(mtu int) error {
	link, err := s.port.State()
	if err != nil {
		return err
	}
	if mtu > link.MTU {
		return fmt.Errorf("%w: MTU %d is above the network card's %d", errDenied, mtu, link.MTU)
	}
	s.wanted, s.card = mtu, link.MTU // the card may have changed without having said so yet
	s.useMTU(mtu)
	return nil
}

func (s *services) useMTU(mtu int) {
	s.mtu = mtu
	s.conn.SetMTU(mtu)
	s.publish()
}

// tell tells the host what changed on the card.
func (s *services) tell(ctx context.Context, before, now lan.LinkState) {
	request := func(t protocol.CfgType, data []byte) {
		if _, err := s.conn.Request(ctx, t, data); err != nil {
			s.host.log.Warn("the host did not follow the network card", "what", t, "error", err)
		}
	}
	if now.MTU != before.MTU && now.MTU > 0 {
		if mtu, changed := s.follow(now.MTU); changed {
			request(protocol.CfgMTU, protocol.AppendMTU(nil, mtu))
		}
	}
	if now.Up != before.Up || now.Speed != before.Speed {
		request(protocol.CfgLinkState, protocol.AppendLinkState(nil,
			protocol.LinkState{Up: now.Up, Speed: uint32(now.Speed)}))
	}
}

// follow makes the MTU follow the network card's, as far as the host wants it,
// and reports whether it changed.
func (s *services) follow(card int) (mtu int, changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.card = card
	s.publish()
	if mtu = s.fitting(card); mtu == s.mtu {
		return mtu, false
	}
	s.useMTU(mtu)
	return mtu, true
}

// fitting is the MTU for a network card with that MTU.
func (s *services) fitting(card int) int {
	mtu := min(card, s.host.hello.MaxMTU)
	if s.wanted != 0 {
		mtu = min(mtu, s.wanted)
	}
	return mtu
}

// setUp sets the port up or down. That it wants it up is a host's word that it
// can be reached here, over a fabric that works in both directions: it comes when
// the host has had an answer and has put the session to use. The LAN is told then
// and not before, while another I/O unit may still have the host's traffic.
func (s *services) setUp(up bool) error {
	if up != s.now.up {
		if err := s.port.SetUp(up); err != nil {
			return err
		}
		s.now.up = up
		s.direct()
	}
	if up && !s.here {
		s.tells.now()
	}
	s.here = up
	return nil
}

// standBy sets the port down until the host wants it up.
func (s *services) standBy() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.setUp(false); err != nil {
		return err
	}
	// What came meanwhile, other sessions of the host's have got as well.
	slot := make([]byte, vnet.Headroom+vnet.MaxFrame+1)
	for _, q := range s.port.Queues() {
		for range standBySkips {
			if _, err := q.ReadFrame(slot); errors.Is(err, unix.EAGAIN) || errors.Is(err, net.ErrClosed) {
				break
			}
		}
	}
	return nil
}

// standBySkips bounds the frames that are thrown away then.
const standBySkips = 4096

// mayBePromiscuous reports whether a host of that policy may be promiscuous. On a
// port of a bridge it gets the same frames then.
func (s *services) mayBePromiscuous(h *policy.Host) bool { return h.Promiscuous || s.port.Floods() }

func (s *services) setFilter(f protocol.ReceiveFilter) error {
	if f.Promisc && !s.mayBePromiscuous(s.policy) {
		return fmt.Errorf("%w: promiscuous mode; `promiscuous: yes` in the policy allows it", errDenied)
	}
	if len(f.Unicast) > lan.MaxUnicast {
		return fmt.Errorf("%w: %d further addresses, at most %d", errDenied, len(f.Unicast), lan.MaxUnicast)
	}
	for _, m := range f.Unicast {
		if err := s.mayUse(m); err != nil {
			return err
		}
	}
	if err := s.shared.addresses.claim(s.host, s.now.mac, f.Unicast); err != nil {
		return err
	}
	if err := s.receive(f); err != nil {
		return errors.Join(err, s.receive(s.now.filter), s.shared.addresses.claim(s.host, s.now.mac, s.now.filter.Unicast))
	}
	s.now.filter = f
	s.publish()
	return nil
}

// receive makes the LAN interface receive what f says.
func (s *services) receive(f protocol.ReceiveFilter) error {
	var unicast, groups []net.HardwareAddr
	for _, m := range f.Unicast {
		unicast = append(unicast, m[:])
	}
	for _, g := range f.Multicast {
		if g != broadcast { // which arrives in any case
			groups = append(groups, g[:])
		}
	}
	return errors.Join(s.port.SetUnicast(unicast), s.port.SetMulticast(groups), s.port.SetAllMulti(f.AllMulti),
		s.port.SetPromisc(f.Promisc))
}

// setVLANs takes "all" for all that the host may have.
func (s *services) setVLANs(want protocol.VLANSet) error {
	for v := range want.All() {
		if !s.policy.VLANs.Has(v) && want != protocol.AllVLANs() {
			return fmt.Errorf("%w: VLAN %d is not among those that the policy gives this host: %v", errDenied, v, s.policy.VLANs)
		}
	}
	s.wish, s.now.vlans = want, s.allowed(want)
	s.publish()
	return nil
}

// allowed is what a host gets that wants those VLANs. The caller holds s.mu.
func (s *services) allowed(want protocol.VLANSet) protocol.VLANSet {
	var got protocol.VLANSet
	for v := range want.All() {
		if s.policy.VLANs.Has(v) {
			got.Add(v)
		}
	}
	return got
}

func (s *services) setOffloads(want vnet.Offloads) error {
	_, err := s.port.SetOffloads(s.offers.Intersect(want))
	s.direct()
	return err
}

// reset makes everything as it was when the session began.
func (s *services) reset() error {
	link, err := s.port.State()
	if err != nil {
		return err
	}
	s.wanted = 0
	s.useMTU(s.fitting(link.MTU))
	return errors.Join(s.setMAC(s.begun.mac), s.setFilter(s.begun.filter), s.setVLANs(s.begun.vlans), s.setUp(s.begun.up))
}

// may is what the host may do.
func (s *services) may() *policy.Host {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.policy
}

// current is what is in force.
func (s *services) current() (settings, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now, s.mtu
}

// statistics are the host's counters since the session began: those of the
// channels, of the LAN interface and of the rules, from the host's point of
// view.
func (s *services) statistics() (st protocol.Statistics, d Dropped) {
	for _, c := range s.conn.Stats().Channels {
		st.RxFrames += c.TxFrames
		st.RxBytes += c.TxBytes - vnet.HdrLen*c.TxFrames
		st.RxTooLong += c.TxTooLong
		st.RxInvalid += c.TxInvalid + c.TxMalformed
		st.TxDropped += c.RxDropped + c.RxOverMTU + c.RxMalformed
	}
	l := s.port.Stats() // TooLong is among TxTooLong
	st.RxDropped += l.Dropped
	st.RxInvalid += l.Invalid
	for _, p := range s.ports {
		p.count(&st, &d)
	}
	return st, d
}

// reported are the counters as the host is told them.
func (s *services) reported() protocol.Statistics {
	st, d := s.statistics()
	return d.into(st)
}

// oversize counts those of all queues.
func (s *services) oversize() (n uint64) {
	for _, p := range s.ports {
		n += p.oversize.Load()
	}
	return n
}
