package protocol

import (
	"errors"
	"slices"
	"testing"
)

func TestModes(t *testing.T) {
	if got := Modes(); !slices.Equal(got, []Mode{"imm", "indicate", "send", "send-uc"}) {
		t.Errorf("%v", got)
	}
	for _, m := range Modes() {
		if got, err := ParseMode(string(m)); got != m || err != nil {
			t.Errorf("%q is parsed as %q, %v", m, got, err)
		}
	}
	for _, s := range []string{"", "Imm", "rdma"} {
		if m, err := ParseMode(s); !errors.Is(err, ErrMode) || m.Known() {
			t.Errorf("%q is parsed as %q, %v", s, m, err)
		}
	}
	type does struct {
		sends, lossy, immediate, indicated bool
		pools                              int
	}
	for m, want := range map[Mode]does{
		ModeImm:      {immediate: true, pools: 64},
		ModeIndicate: {indicated: true, pools: 64},
		ModeSend:     {sends: true, pools: 1},
		ModeSendUC:   {sends: true, lossy: true, pools: 1},
	} {
		if got := (does{m.Sends(), m.Lossy(), m.Immediate(), m.Indicated(), m.MaxPools()}); got != want {
			t.Errorf("%s: %+v", m, got)
		}
	}
}

// TestControlReceives checks the number of control receives that a peer has to post,
// which is part of the protocol.
func TestControlReceives(t *testing.T) {
	for _, tt := range []struct {
		mode                  Mode
		channels, pools, want int
	}{
		{ModeImm, 1, 1, 22},
		{ModeImm, 2, 2, 36},
		{ModeImm, 4, 64, 1048},
		{ModeIndicate, 1, 1, 38},
		{ModeIndicate, 4, 3, 136},
		{ModeSend, 4, 1, 40},
		{ModeSendUC, 255, 1, 1546},
	} {
		if got := ControlReceives(tt.mode, tt.channels, tt.pools); got != tt.want {
			t.Errorf("%s, %d channels of %d pools: %d, want %d", tt.mode, tt.channels, tt.pools, got, tt.want)
		}
	}
}

func TestCanImm(t *testing.T) {
	for _, tt := range []struct {
		pool, element uint32
		length        int
		want          bool
	}{
		{0, 0, 0, true},
		{255, 255, 65535, true},
		{256, 0, 0, false},
		{0, 256, 0, false},
		{0, 0, 65536, false},
		{0, 0, -1, false},
	} {
		if got := CanImm(tt.pool, tt.element, tt.length); got != tt.want {
			t.Errorf("pool %d, element %d, %d bytes: %t", tt.pool, tt.element, tt.length, got)
		}
	}
}

func TestPoolOfSendMode(t *testing.T) {
	good := Pool{Elements: 1024, ElementSize: 2048, Context: 1}
	for name, tt := range map[string]struct {
		change func(*Pool)
		want   error
	}{
		"good":        {func(*Pool) {}, nil},
		"no elements": {func(p *Pool) { p.Elements = 0 }, ErrCount},
		"handle":      {func(p *Pool) { p.RKey = 1 }, ErrMemory},
		"address":     {func(p *Pool) { p.Addr = 1 }, ErrMemory},
	} {
		p := good
		tt.change(&p)
		if err := p.ValidSend(); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
	}
}

func TestNames(t *testing.T) {
	seen := make(map[string]bool)
	once := func(name string, number any) {
		if name == "" || seen[name] {
			t.Errorf("%v has the name %q", number, name)
		}
		seen[name] = true
	}
	for f := FuncBufferRecvPool; f <= FuncCfgUtilReply+1; f++ {
		once(f.String(), uint16(f))
		if f.known() != (f <= FuncCfgUtilReply) {
			t.Errorf("%v: known %t", f, f.known())
		}
	}
	for c := CfgMAC; c <= CfgRefusal+1; c++ {
		once(c.String(), uint32(c))
	}
	if CfgSent.String() != "sent" || FuncBufferRDMAIndicate.String() != "BufferRDMAIndicate" {
		t.Error("names")
	}
}
