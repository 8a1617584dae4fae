package messaging_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/seal"
	"github.com/splitnic/splitnic/vnet"
)

// sealedWith returns cfg for both sides of a session with encryption.
func sealedWith(t testing.TB, c seal.Cipher, cfg messaging.Config) (host, unit messaging.Config) {
	t.Helper()
	cfg.Keys, cfg.KeySend = testKeys(t, c, [seal.SecretSize]byte{1, 2, 3}, true), false
	return cfg, peerOf(t, cfg)
}

func testKeys(t testing.TB, c seal.Cipher, secret [seal.SecretSize]byte, host bool) *seal.Keys {
	t.Helper()
	k, err := seal.NewKeys(c, secret, host)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// peerOf returns the configuration of the peer of a host with cfg: the same, but for the keys.
func peerOf(t testing.TB, cfg messaging.Config) messaging.Config {
	t.Helper()
	if k := cfg.Keys; k != nil {
		cfg.Keys = testKeys(t, k.Cipher(), k.Secret(), false)
	}
	return cfg
}

// onWire is a device of which somebody sees, and may change, all that its queue pairs send. If it is
// the Config.Device of an endpoint, the endpoint uses its own device through it.
type onWire struct {
	fabric.Device
	mu   sync.Mutex
	mem  [][]byte // registered memory
	sent wireTap
}

// bytesOf returns the data of a work request.
type bytesOf = func(*fabric.SendWR) []byte

// wireTap gets the work requests of one call, with their data, and returns those to post.
type wireTap func(control bool, wrs []fabric.SendWR, data bytesOf) []fabric.SendWR

type wireDomain struct {
	fabric.Domain
	w       *onWire
	control uint32 // number of the first queue pair
}

type wireQP struct {
	fabric.QP
	d *wireDomain
}

func (w *onWire) on(dev fabric.Device) { w.Device = dev }

// watch replaces the tap.
func (w *onWire) watch(tap wireTap) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sent = tap
}

// at returns the data of a work request. The caller holds the lock.
func (w *onWire) at(wr *fabric.SendWR) []byte {
	for _, mem := range w.mem {
		if off := wr.Addr - uint64(uintptr(unsafe.Pointer(&mem[0]))); off < uint64(len(mem)) {
			return mem[off:][:wr.Len]
		}
	}
	return nil
}

func (w *onWire) NewDomain() (fabric.Domain, error) {
	d, err := w.Device.NewDomain()
	return &wireDomain{Domain: d, w: w}, err
}

func (d *wireDomain) Register(mem []byte, access fabric.Access) (fabric.Region, error) {
	d.w.mu.Lock()
	defer d.w.mu.Unlock()
	d.w.mem = append(d.w.mem, mem)
	return d.Domain.Register(mem, access)
}

func (d *wireDomain) NewQP(cfg fabric.QPConfig) (fabric.QP, error) {
	q, err := d.Domain.NewQP(cfg)
	if err == nil && d.control == 0 {
		d.control = q.Num()
	}
	return wireQP{q, d}, err
}

func (q wireQP) PostSend(wrs []fabric.SendWR) (int, error) {
	w := q.d.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.sent != nil {
		wrs = w.sent(q.Num() == q.d.control, wrs, w.at)
	}
	return q.QP.PostSend(wrs)
}

// onEndpoint returns cfg with a wire for the device of its endpoint.
func onEndpoint(cfg messaging.Config, tap wireTap) (messaging.Config, *onWire) {
	w := &onWire{sent: tap}
	cfg.Device = w
	return cfg, w
}

// TestSealed sends frames of all sizes in both directions, in each mode, with each protection and
// cipher, while the keys are renewed. Nothing of them may be on the fabric as it is.
func TestSealed(t *testing.T) {
	mark := []byte("a mark that each frame has, in the clear")
	for _, mode := range protocol.Modes() {
		for _, protection := range messaging.Protections() {
			if mode.Sends() && protection != messaging.ProtectRegion {
				continue
			}
			for _, c := range seal.Ciphers() {
				t.Run(fmt.Sprintf("%s, %s, %s", mode, protection, c), func(t *testing.T) {
					host, unit := sealedWith(t, c, patient(messaging.Config{
						Mode: mode, Protection: protection, Invalidation: true, OneTouch: true, Queues: 2,
						Pools: messaging.DefaultPools(mode, protocol.MaxMTU),
					}))
					var clear, seen atomic.Int64
					look := func(_ bool, wrs []fabric.SendWR, data bytesOf) []fabric.SendWR {
						for i := range wrs {
							if b := data(&wrs[i]); wrs[i].Len > 0 && wrs[i].Op != fabric.OpLocalInv {
								seen.Add(1)
								if bytes.Contains(b, mark[:12]) {
									clear.Add(1)
								}
							}
						}
						return wrs
					}
					host, _ = onEndpoint(host, look)
					unit, _ = onEndpoint(unit, look)
					n, a, b := newPair(t, host, unit)
					ctx := whileUp(t, []*endpoint{a, b})
					sizes := []int{vnet.MinFrame, vnet.MaxFrame, protocol.MaxImmLength, protocol.MaxImmLength - seal.Overhead,
						protocol.MaxImmLength - seal.Overhead + 1}
					sizes = append(sizes, frameSizes(uint64(len(c)), 150)...)
					var wg sync.WaitGroup
					for q := range 2 {
						for _, dir := range [][2]*endpoint{{a, b}, {b, a}} {
							wg.Go(func() {
								if err := stream(ctx, dir[0].wires[q], dir[1].wires[q], sizes, 1500); err != nil {
									t.Errorf("queue %d, from %s: %v", q, dir[0].name, err)
								}
								host.Keys.Renew()
								marked := slices.Concat(make([]byte, vnet.HdrLen+vnet.EthLen), bytes.Repeat(mark, 4))
								marked[vnet.HdrLen], marked[vnet.HdrLen+6] = 2, 2
								for range 20 {
									if err := dir[0].wires[q].Send(ctx, marked); err != nil {
										t.Error(err)
									}
									unit.Keys.Renew()
								}
								buf := make([]byte, vnet.MaxFrame)
								for range 20 {
									if got, err := dir[1].wires[q].Receive(ctx, buf); err != nil || !bytes.Equal(got, marked) {
										t.Errorf("a marked frame of %d bytes arrives with %d: %v", len(marked), len(got), err)
										return
									}
								}
							})
						}
					}
					wg.Wait()
					if t.Failed() {
						return
					}
					settled(t, a, b)
					untroubled(t, n, a, b)
					if clear.Load() > 0 || seen.Load() == 0 {
						t.Errorf("%d of %d transfers and messages have parts of frames in the clear", clear.Load(), seen.Load())
					}
					for _, h := range []*endpoint{a, b} {
						for _, s := range h.conn.Stats().Channels {
							if s.TxSealed != transfers(s) || s.RxOpened != s.RxFrames-s.RxPacked+s.RxPacks {
								t.Errorf("%s: %d transfers sealed, %d opened: %+v", h.name, s.TxSealed, s.RxOpened, s)
							}
						}
					}
				})
			}
		}
	}
}

// TestSealedMessages looks at the control channel of a session with encryption: each message has the
// tag's bytes more, and none has the beginning of a message in the clear.
func TestSealedMessages(t *testing.T) {
	host, unit := sealedWith(t, seal.AES128GCM, patient(messaging.Config{Mode: protocol.ModeIndicate}))
	var messages, clear atomic.Int64
	host, _ = onEndpoint(host, func(control bool, wrs []fabric.SendWR, data bytesOf) []fabric.SendWR {
		for i := range wrs {
			if !control {
				continue
			}
			messages.Add(1)
			if _, err := protocol.DecodeHeader(data(&wrs[i])); err == nil {
				clear.Add(1)
			}
		}
		return wrs
	})
	_, a, b := newPair(t, host, unit)
	if err := stream(deadline(t), a.wires[0], b.wires[0], randomSizes(1, 300), 1500); err != nil {
		t.Fatal(err)
	}
	// By chance 1 of 2^16 messages begins with the version and a function.
	if m, c := messages.Load(), clear.Load(); m < 5 || c > m/3 {
		t.Errorf("%d of %d messages are in the clear", c, m)
	}
}

// TestSealedTampered changes what one side sends in each way that somebody on the fabric can who has
// all numbers and keys of the queue pairs. The session must end for that reason, and what was changed
// must not be delivered.
func TestSealedTampered(t *testing.T) {
	type change struct {
		name  string
		modes []protocol.Mode
		// transfer changes the third transfer, whose bytes are b; last are those of the one before.
		transfer func(wr *fabric.SendWR, b, last []byte)
	}
	all := protocol.Modes()
	lengths := slices.DeleteFunc(protocol.Modes(), protocol.Mode.Indicated) // a transfer has its length
	header := func(wr *fabric.SendWR) int {
		if wr.Op == fabric.OpSend {
			return protocol.SendDataOverhead
		}
		return 0
	}
	shorten := func(wr *fabric.SendWR, b []byte, by int) {
		wr.Len -= uint32(by)
		switch wr.Op {
		case fabric.OpWriteImm:
			pool, elem, n := protocol.ImmData(wr.Imm).Unpack()
			wr.Imm = uint32(protocol.PackImm(pool, elem, uint16(int(n)-by)))
		case fabric.OpSend:
			m, err := protocol.DecodeSendData(b)
			if err != nil {
				panic(err)
			}
			protocol.PutSendData(b, m.TransactionContext, len(m.Data)-by)
		default:
		}
	}
	for _, c := range []change{
		{"a bit of a frame", all, func(wr *fabric.SendWR, b, _ []byte) { b[header(wr)+30] ^= 4 }},
		{"a bit of the tag", all, func(_ *fabric.SendWR, b, _ []byte) { b[len(b)-3] ^= 1 }},
		{"repeated", all, func(wr *fabric.SendWR, b, last []byte) { copy(b[header(wr):], last[header(wr):]) }},
		{"in the clear", all, func(wr *fabric.SendWR, b, _ []byte) {
			copy(b[header(wr):], frame(9, len(b)-header(wr), 1500))
		}},
		{"truncated", lengths,
			func(wr *fabric.SendWR, b, _ []byte) { shorten(wr, b, 1) }},
		{"shorter than a tag", lengths,
			func(wr *fabric.SendWR, b, _ []byte) { shorten(wr, b, len(b)-header(wr)-5) }},
		{"lengthened", []protocol.Mode{protocol.ModeImm}, func(wr *fabric.SendWR, b, _ []byte) { shorten(wr, b, -8) }},
		{"another element", []protocol.Mode{protocol.ModeImm}, func(wr *fabric.SendWR, _, _ []byte) {
			const unused = 200 // the first elements are used first
			pool, elem, n := protocol.ImmData(wr.Imm).Unpack()
			wr.RemoteAddr += (unused - uint64(elem)) * 2048
			wr.Imm = uint32(protocol.PackImm(pool, unused, n))
		}},
	} {
		for _, mode := range c.modes {
			t.Run(c.name+"/"+string(mode), func(t *testing.T) {
				host, unit := sealedWith(t, seal.AES128GCM, patient(messaging.Config{
					Mode: mode, Protection: messaging.ProtectRegion, NoPack: true, MaxInline: -1,
					Pools: messaging.DefaultPools(mode, 1500)[:1]}))
				var last []byte
				count := 0
				host, _ = onEndpoint(host, func(control bool, wrs []fabric.SendWR, data bytesOf) []fabric.SendWR {
					wrs = slices.Clone(wrs)
					for i := range wrs {
						if control || wrs[i].Len == 0 {
							continue
						}
						b := data(&wrs[i])
						if count++; count == 3 {
							c.transfer(&wrs[i], b, last)
						}
						last = slices.Clone(b)
					}
					return wrs
				})
				_, a, b := newPair(t, host, unit)
				ctx := deadline(t)
				buf := make([]byte, vnet.MaxFrame)
				for i := range uint64(2) {
					if err := a.wires[0].Send(ctx, frame(i, 400, 1500)); err != nil {
						t.Fatal(err)
					}
					if got, err := b.wires[0].Receive(ctx, buf); err != nil || !bytes.Equal(got, frame(i, 400, 1500)) {
						t.Fatal(len(got), err)
					}
				}
				if err := a.wires[0].Send(ctx, frame(2, 400, 1500)); err != nil {
					t.Fatal(err)
				}
				err := ended(t, b)
				var broken *messaging.ProtocolError
				if !errors.Is(err, messaging.ErrNotAuthentic) || !errors.As(err, &broken) || broken.Code() != "not-authentic" ||
					broken.Channel != 1 {
					t.Fatalf("the session ended with: %v", err)
				}
				testenv.Explained(t, broken.Code())
				testenv.Explained(t, err.Error())
				if s := b.conn.Stats().Channels[0]; s.RxFrames != 2 || s.RxOpened != 2 {
					t.Errorf("%d frames were delivered, %d transfers opened", s.RxFrames, s.RxOpened)
				}
			})
		}
	}
}

// TestSealedControlTampered is TestSealedTampered for messages.
func TestSealedControlTampered(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(b, last []byte)
	}{
		{"a bit", func(b, _ []byte) { b[5] ^= 1 }},
		{"a bit of the tag", func(b, _ []byte) { b[len(b)-1] ^= 1 }},
		{"repeated", func(b, last []byte) { copy(b, last) }},
		{"in the clear", func(b, _ []byte) {
			r := protocol.CfgUtilRequest{TransactionContext: 1, Type: protocol.CfgKeepAlive}
			copy(b, protocol.AppendCfgUtilRequest(nil, r))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			host, unit := sealedWith(t, seal.AES128GCM, patient(messaging.Config{}))
			host, w := onEndpoint(host, nil)
			_, a, b := newPair(t, host, unit)
			if err := a.conn.Reach(t.Context()); err != nil {
				t.Fatal(err)
			}
			var last []byte
			changed := false
			w.watch(func(control bool, wrs []fabric.SendWR, data bytesOf) []fabric.SendWR {
				for i := range wrs {
					if !control || changed {
						continue
					}
					m := data(&wrs[i])
					if len(last) == len(m) {
						c.change(m, last)
						changed = true
					}
					last = slices.Clone(m)
				}
				return wrs
			})
			ctx := whileUp(t, []*endpoint{a, b})
			for ctx.Err() == nil {
				_ = a.conn.Reach(ctx) // the session ends at one of them
			}
			err := ended(t, b)
			var broken *messaging.ProtocolError
			if !errors.Is(err, messaging.ErrNotAuthentic) || !errors.As(err, &broken) || broken.Channel != 0 {
				t.Errorf("the session ended with: %v", err)
			}
		})
	}
}

// TestSealedDifferently connects sides with different secrets, with different ciphers, and one with
// encryption with one without: none of them may exchange a frame.
func TestSealedDifferently(t *testing.T) {
	cfg := patient(messaging.Config{})
	keys := func(c seal.Cipher, secret byte, host bool) *seal.Keys {
		return testKeys(t, c, [seal.SecretSize]byte{secret}, host)
	}
	for name, sides := range map[string][2]*seal.Keys{
		"secret":     {keys(seal.AES128GCM, 1, true), keys(seal.AES128GCM, 2, false)},
		"cipher":     {keys(seal.AES256GCM, 1, true), keys(seal.ChaCha20Poly1305, 1, false)},
		"both hosts": {keys(seal.AES128GCM, 1, true), keys(seal.AES128GCM, 1, true)},
		"only one":   {keys(seal.AES128GCM, 1, true), nil},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := cfg, cfg
			a.Keys, b.Keys = sides[0], sides[1]
			_, ha, hb := newPair(t, a, b)
			<-whileUp(t, []*endpoint{ha, hb}).Done() // the side that gets a message first ends
			err := errors.Join(ha.conn.Err(), hb.conn.Err())
			var broken *messaging.ProtocolError
			if !errors.As(err, &broken) || broken.Channel != 0 {
				t.Errorf("the sessions ended with: %v", err)
			}
		})
	}
}

// TestSealedWithoutKeyMessages refuses keys of pools that would not be sealed.
func TestSealedWithoutKeyMessages(t *testing.T) {
	host, _ := sealedWith(t, seal.AES128GCM, messaging.Config{})
	host.KeySend = true
	if err := host.Check(); err == nil {
		t.Error("accepted")
	}
}
