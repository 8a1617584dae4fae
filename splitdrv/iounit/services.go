package iounit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/limit"
	"github.com/splitnic/splitnic/internal/wake"
	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/capture"
	"github.com/splitnic/splitnic/splitdrv/iounit/guard"
	"github.com/splitnic/splitnic/splitdrv/iounit/policy"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/seal"
	"github.com/splitnic/splitnic/vnet"
)

var (
	// errMalformed is wrapped by errors about a request's data.
	errMalformed = errors.New("malformed request")
	// errNoService is wrapped by the error of an unknown request.
	errNoService = errors.New("no such service")
)

// services carries out a host's requests on its LAN interface, until that is closed. The
// fields guarded by mu are one state: a request, a new policy, or a change of the network
// card concerns several of them together. There is a method for each request.
type services struct {
	host   *host
	shared *common
	port   lan.Interface
	conn   *messaging.Conn // set before it is started
	offers vnet.Offloads   // all offloads that the host can have
	guard  *guard.Guard
	lines  limit.Log // limit of log lines that the host causes
	tells  *announcer
	retry  chan struct{} // signaled when a refused request may be granted; capacity one

	mu       sync.Mutex   // guards the fields below
	policy   *policy.Host // permissions; not changed, only replaced
	now      settings
	account  guard.Account               // its rates
	begun    settings                    // settings at the beginning of the session
	wish     protocol.VLANSet            // VLANs that the host requests; now.vlans are the permitted ones
	mtu      int                         // MTU in force
	card     int                         // MTU of the network card
	here     bool                        // the host has reported that its netdevice is up
	wanted   int                         // MTU that the host requested; 0: none
	asked    protocol.ReceiveFilter      // filter that the host requested; now.filter is the permitted part
	cleared  protocol.Statistics         // counters when they were last cleared
	complain string                      // last refusal that was logged
	reasons  map[protocol.CfgType]string // why the last request of a type was refused, or a part of it
	link     bool                        // the link of the LAN is up
}

// settings has the settings that a host can change.
type settings struct {
	mac    protocol.MAC
	filter protocol.ReceiveFilter
	vlans  protocol.VLANSet
	up     bool
}

// common is the state that the services of all hosts share.
type common struct {
	addresses *addresses
	direct    *directing // nil without direct connections
	accounts  guard.Accounts
	captures  capture.Point
	stations  *guard.Stations // of the LAN, if that is a bridge or switch
	encrypt   seal.Wish       // Config.Encrypt
}

func newServices(h *host, c *common, port lan.Interface, mac protocol.MAC, mtu, card int) *services {
	s := &services{
		host: h, shared: c, policy: h.policy, port: port, offers: port.Offloads(), mtu: mtu, card: card,
		now:  settings{mac: mac, filter: protocol.ReceiveFilter{AllMulti: true}, vlans: h.policy.VLANs, up: true},
		wish: protocol.AllVLANs(), retry: make(chan struct{}, 1),
		reasons: make(map[protocol.CfgType]string),
	}
	s.asked = s.now.filter
	s.begun = s.now
	s.begun.vlans = s.wish
	of := guard.Options{
		Queues: port.Queues(), Latency: h.hasLatency(), Taken: &c.addresses.taken, Flows: c.direct.sampler(h),
		Drops: c.captures.Path(fmt.Sprintf("host %s dropped", h.hello.Name),
			"what the policy keeps from the LAN; key "+h.peer().String()),
		Direct: func() bool { return h.seen.Load() != nil }, Wake: func() { s.conn.Unhold() },
	}
	if port.Floods() {
		of.Stations = c.stations
	}
	s.guard = guard.New(of)
	s.tells = newAnnouncer(h, c.addresses, port, s.guard, &s.lines)
	s.account = c.accounts.Take(h.payer())
	s.account.Limit(h.policy)
	s.publish()
	return s
}

// leave keeps the account of the session, after its last frame.
func (s *services) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shared.accounts.Put(s.host.payer(), s.account)
}

// publish derives the rules for frames from the settings.
func (s *services) publish() {
	f := s.now.filter
	r := &guard.Rules{
		MAC: s.now.mac, Own: s.host.own, Further: protocol.NewMACSet(f.Unicast), Host: s.policy,
		Groups: slices.Clone(f.Multicast), Every: f.AllMulti || f.Promisc, Receive: s.now.vlans,
		MTU: s.mtu, Card: s.card, Account: s.account,
	}
	slices.SortFunc(r.Groups, func(a, b protocol.Group) int { return slices.Compare(a[:], b[:]) })
	if f.Promisc {
		r.Receive = s.policy.VLANs
	}
	s.guard.SetRules(r)
	s.direct()
}

// direct passes the settings on which direct connections depend to directing. The caller
// holds s.mu.
func (s *services) direct() {
	s.shared.direct.changed(s.host, portFacts{
		macs: append([]protocol.MAC{s.now.mac}, s.now.filter.Unicast...), vlans: s.now.vlans, mtu: s.mtu,
		offloads: s.port.Offloads(), up: s.now.up, link: s.link,
		promisc: s.now.filter.Promisc && !s.port.Floods(),
	})
}

func (s *services) linkIs(up bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.link = up
	s.direct()
}

// answer answers a request of the host (messaging.Config.OnRequest).
func (s *services) answer(t protocol.CfgType, data []byte) (protocol.CfgStatus, []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(data) > 0 && t != protocol.CfgRefusal {
		delete(s.reasons, t)
	}
	reply, err := s.handle(t, data)
	if err == nil {
		s.host.log.Debug("host's request", "about", t, "bytes", len(data))
		return protocol.CfgOK, reply
	}
	s.refused(t, err)
	return statusOf(err), nil
}

// refused records why a request, or a part of it, was refused, for the host and in the log.
// The caller holds s.mu.
func (s *services) refused(t protocol.CfgType, err error) {
	if statusOf(err) == protocol.CfgDenied { // other reasons are the I/O unit's own affair
		s.reasons[t] = err.Error()
	}
	if text := err.Error(); text != s.complain { // logged once, however often it is repeated
		s.complain = text
		s.lines.Log(s.host.log, slog.LevelWarn, "host's request refused", "about", t, "error", err)
	}
}

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

// handle carries out one request and returns the value in force afterwards. Without data,
// requests that set something only return the value.
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
	case protocol.CfgRefusal:
		about, err := protocol.DecodeSubject(data)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errMalformed, err)
		}
		return protocol.AppendRefusal(nil, s.reasons[about]), nil
	case protocol.CfgStatsRead, protocol.CfgStatsClear, protocol.CfgReset:
		if len(data) != 0 {
			return nil, fmt.Errorf("%w: %d bytes of data, must be none", errMalformed, len(data))
		}
		return s.act(t)
	default:
		return nil, fmt.Errorf("%w: %v", errNoService, t)
	}
}

// act carries out a request without data.
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

// set decodes data and calls do with the value. Without data it does nothing.
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
	// Claim both addresses, so that no other host gets the old one if SetMAC fails.
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

func (s *services) mayUse(mac protocol.MAC) error { return mayUse(s.policy, mac, s.host.own) }

func (s *services) setMTU(mtu int) error {
	link, err := s.port.State()
	if err != nil {
		return err
	}
	if mtu > link.MTU {
		return fmt.Errorf("%w: MTU %d is above the network card's %d", errDenied, mtu, link.MTU)
	}
	s.wanted, s.card = mtu, link.MTU // a change of the card may not have been reported yet
	s.useMTU(mtu)
	return nil
}

func (s *services) useMTU(mtu int) {
	s.mtu = mtu
	s.conn.SetMTU(mtu)
	s.publish()
}

// tell sends changes of the card to the host.
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

// follow sets the MTU to that of the network card, within the limits of the host, and
// reports whether it has changed.
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

// fitting returns the MTU of the session for the MTU of the network card.
func (s *services) fitting(card int) int {
	mtu := min(card, s.host.hello.MaxMTU)
	if s.wanted != 0 {
		mtu = min(mtu, s.wanted)
	}
	return mtu
}

// setUp sets the LAN interface up or down. A host requests up when it uses the session, and
// has had an answer over the fabric, which therefore works in both directions. The host is
// announced in the LAN only then: before, another I/O unit may still have its traffic.
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

// standBy sets the LAN interface down until the host requests it up.
func (s *services) standBy() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.setUp(false); err != nil {
		return err
	}
	// Drop the frames that have arrived: another session of the host has got them, too.
	op := []vnet.ReadOp{{Slot: make([]byte, vnet.Headroom+vnet.MaxFrame+1)}}
	for _, q := range s.port.Queues() {
		for range standBySkips {
			if q.ReadFrames(op); errors.Is(op[0].Err, unix.EAGAIN) || errors.Is(op[0].Err, net.ErrClosed) {
				break
			}
		}
	}
	return nil
}

// standBySkips is the largest number of frames that standBy drops.
const standBySkips = 4096

// setVLANs sets the VLANs of the host. A request for all VLANs means all permitted ones.
func (s *services) setVLANs(want protocol.VLANSet) error {
	for v := range want.All() {
		if !s.policy.VLANs.Has(v) && want != protocol.AllVLANs() {
			return fmt.Errorf("%w: VLAN %d is not among those that `vlans` in the policy gives this host: %v",
				errDenied, v, s.policy.VLANs)
		}
	}
	s.wish, s.now.vlans = want, s.allowed(want)
	s.publish()
	return nil
}

// allowed returns the permitted ones of the VLANs that the host requests. The caller holds
// s.mu.
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

// reset sets everything to the values at the beginning of the session.
func (s *services) reset() error {
	link, err := s.port.State()
	if err != nil {
		return err
	}
	s.wanted = 0
	s.useMTU(s.fitting(link.MTU))
	return errors.Join(s.setMAC(s.begun.mac), s.setFilter(s.begun.filter), s.setVLANs(s.begun.vlans), s.setUp(s.begun.up))
}

func (s *services) may() *policy.Host {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.policy
}

func (s *services) current() (settings, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now, s.mtu
}

// statistics returns the host's counters since the beginning of the session: those of the
// channels, the LAN interface and the rules, from the host's point of view.
func (s *services) statistics() (st protocol.Statistics, d guard.Dropped) {
	for _, c := range s.conn.Stats().Channels {
		st.RxFrames += c.TxFrames
		st.RxBytes += c.TxBytes - vnet.HdrLen*c.TxFrames
		st.RxTooLong += c.TxTooLong
		st.RxInvalid += c.TxInvalid + c.TxMalformed
		st.TxDropped += c.RxDropped + c.RxOverMTU + c.RxMalformed
	}
	l := s.port.Stats() // its TooLong is included in TxTooLong
	st.RxDropped += l.Dropped
	st.RxInvalid += l.Invalid
	s.guard.Count(&st, &d)
	return st, d
}

// reported returns the counters that are sent to the host.
func (s *services) reported() protocol.Statistics {
	st, d := s.statistics()
	return d.Into(st)
}

// mayBePromiscuous reports whether a host with permissions h may be promiscuous. On a port
// of a bridge it always may, because it gets the same frames then.
func (s *services) mayBePromiscuous(h *policy.Host) bool { return h.Promiscuous || s.port.Floods() }

// setFilter sets the receive filter of the host to the permitted part of f. Each further
// address is judged alone. A host that needs more of them than it may have gets what a
// network card does: everything, if it may be promiscuous. Otherwise the addresses that it
// has stay, and the others are refused. The caller holds s.mu.
func (s *services) setFilter(f protocol.ReceiveFilter) error {
	if f.Promisc && !s.mayBePromiscuous(s.policy) {
		return fmt.Errorf("%w: promiscuous mode; `promiscuous: yes` in the policy allows it", errDenied)
	}
	asked, most, had := f, s.policy.MostMACs(), s.now.filter.Unicast
	wanted := s.inTurn(f.Unicast)
	got, refused := s.shared.addresses.claimEach(s.host, s.now.mac, wanted, most, s.mayUse, s.tryAgain)
	if len(got) < len(wanted) && s.mayBePromiscuous(s.policy) {
		beyond := func(r refusedMAC) bool { return errors.Is(r.why, errBeyond) }
		f.Promisc = f.Promisc || slices.ContainsFunc(refused, beyond)
		refused = slices.DeleteFunc(refused, beyond)
	}
	refusal := summary(refused, len(wanted), most)
	if len(got) == 0 && refusal != nil { // as with other requests: it is refused, and nothing changes
		return refusal
	}
	f.Unicast = got
	if err := s.receive(f); err != nil {
		return errors.Join(err, s.receive(s.now.filter), s.shared.addresses.claim(s.host, s.now.mac, had))
	}
	s.now.filter, s.asked = f, asked
	if refusal != nil {
		s.refused(protocol.CfgFilter, refusal)
	}
	s.publish()
	return nil
}

// inTurn returns addresses in the order in which they are granted: those that the host has
// come first. Each of them is in the result once.
func (s *services) inTurn(macs []protocol.MAC) []protocol.MAC {
	var has, others []protocol.MAC
	now, seen := protocol.NewMACSet(s.now.filter.Unicast), make(map[protocol.MAC]bool, len(macs))
	for _, m := range macs {
		switch {
		case seen[m]:
		case now.Has(m):
			has = append(has, m)
		default:
			others = append(others, m)
		}
		seen[m] = true
	}
	return append(has, others...)
}

// tryAgain makes repeat tell the host that a refused request may be granted now.
func (s *services) tryAgain() {
	wake.Up(s.retry)
}

// repeat tells the host each time that it may repeat a request about the receive filter of
// which something was refused, until ctx is done.
func (s *services) repeat(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.retry:
		}
		_, err := s.conn.Request(ctx, protocol.CfgRefusal, protocol.AppendSubject(nil, protocol.CfgFilter))
		if err != nil {
			return // a host that does not know it asks again by itself
		}
	}
}

func (s *services) receive(f protocol.ReceiveFilter) error {
	var unicast, groups []net.HardwareAddr
	for _, m := range f.Unicast {
		unicast = append(unicast, m[:])
	}
	for _, g := range f.Multicast {
		if g != guard.Broadcast { // always received
			groups = append(groups, g[:])
		}
	}
	return errors.Join(s.port.SetUnicast(unicast), s.port.SetMulticast(groups), s.port.SetAllMulti(f.AllMulti),
		s.port.SetPromisc(f.Promisc))
}
