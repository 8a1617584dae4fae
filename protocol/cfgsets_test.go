package protocol

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

func TestFilterRoundTrip(t *testing.T) {
	for _, want := range []ReceiveFilter{
		{},
		{Promisc: true},
		{AllMulti: true},
		goldenFilter,
		{Unicast: []MAC{{2, 0, 0, 0, 0, 1}, {2, 0, 0, 0, 0, 2}}},
		{Multicast: []Group{{255, 255, 255, 255, 255, 255}}},
	} {
		got, err := DecodeReceiveFilter(AppendReceiveFilter(nil, want))
		if err != nil || !got.Equal(want) {
			t.Errorf("%+v became %+v, %v", want, got, err)
		}
		other := want
		other.Multicast = append(slices.Clone(want.Multicast), Group{1, 1, 1, 1, 1, 1})
		if other.Equal(want) {
			t.Errorf("%+v is equal to %+v", other, want)
		}
	}
}

// TestFilterDoesNotBorrow clears the buffer of a decoded message, and expects the message not to
// change: the next receive reuses the buffer.
func TestFilterDoesNotBorrow(t *testing.T) {
	b := AppendReceiveFilter(nil, goldenFilter)
	f, err := DecodeReceiveFilter(b)
	clear(b)
	if err != nil || !f.Equal(goldenFilter) {
		t.Errorf("%+v, %v", f, err)
	}
}

func TestFilterAsJSON(t *testing.T) {
	const text = `{"promisc":false,"allmulti":true,"unicast":["02:00:5e:10:00:02"],"multicast":["01:00:5e:00:00:01","33:33:00:00:00:01"]}`
	b, err := json.Marshal(goldenFilter)
	if err != nil || string(b) != text {
		t.Errorf("encoded %s, %v", b, err)
	}
	var got ReceiveFilter
	if err := json.Unmarshal([]byte(text), &got); err != nil || !got.Equal(goldenFilter) {
		t.Errorf("decoded %+v, %v", got, err)
	}
	var g Group
	for _, s := range []string{"02:00:00:00:00:01", "x", "", "01:00:00:00:00:00:00:00"} {
		if err := g.UnmarshalText([]byte(s)); !errors.Is(err, ErrGroup) {
			t.Errorf("group %q: %v", s, err)
		}
	}
}

func TestVLANSet(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 200 {
		want := make(map[uint16]bool)
		var s VLANSet
		for range r.IntN(60) {
			v := uint16(r.IntN(1 << r.IntN(17)))
			s.Add(v)
			if v >= MinVLAN && v <= MaxVLAN {
				want[v] = true
			}
		}
		if s.Len() != len(want) {
			t.Fatalf("%v has %d, want %d", s, s.Len(), len(want))
		}
		for v := range 1 << 16 {
			if s.Has(uint16(v)) != want[uint16(v)] {
				t.Fatalf("%v has %d: %t", s, v, s.Has(uint16(v)))
			}
		}
		all := slices.Collect(s.All())
		if len(all) != len(want) || !slices.IsSorted(all) {
			t.Fatalf("%v goes over %v", s, all)
		}
		for _, v := range all {
			if !want[v] {
				t.Fatalf("%v goes over %d", s, v)
			}
		}
		if got, err := DecodeVLANSet(AppendVLANSet(nil, s)); err != nil || got != s {
			t.Fatalf("%v became %v, %v", s, got, err)
		}
		if got, err := ParseVLANs(s.String()); err != nil || got != s {
			t.Fatalf("%v became %v, %v", s, got, err)
		}
	}
	set := vlans(1, 2)
	for range set.All() {
		break // an iteration may end early
	}
}

func TestVLANSetText(t *testing.T) {
	for _, tt := range []struct {
		text string
		set  VLANSet
	}{
		{"none", VLANSet{}},
		{"all", AllVLANs()},
		{"7", vlans(7)},
		{"1-2,4094", vlans(1, 2, 4094)},
		{"8,10-12,100", vlans(8, 10, 11, 12, 100)},
	} {
		if got := tt.set.String(); got != tt.text {
			t.Errorf("got %q, want %q", got, tt.text)
		}
		var got VLANSet
		if err := got.UnmarshalText([]byte(tt.text)); err != nil || got != tt.set {
			t.Errorf("%q became %v, %v", tt.text, got, err)
		}
	}
	if got, err := ParseVLANs("12, 11,10-10"); err != nil || got != vlans(10, 11, 12) {
		t.Errorf("%v, %v", got, err)
	}
	for _, s := range []string{"", "0", "4095", "3-1", "1-", "-1", "x", "1,,2", "1-4095", "65537"} {
		if got, err := ParseVLANs(s); !errors.Is(err, ErrVLAN) {
			t.Errorf("%q became %v, %v", s, got, err)
		}
	}
}

// TestStatisticsCounters expects each field of Statistics among the counters that are sent, and to
// be subtracted by Minus.
func TestStatisticsCounters(t *testing.T) {
	var s Statistics
	for i, c := range s.counters() {
		*c = uint64(i) + 1
	}
	double := s
	for i, v := 0, reflect.ValueOf(&double).Elem(); i < v.NumField(); i++ {
		if v.Field(i).Uint() != uint64(i)+1 {
			t.Errorf("%s is not counter %d", v.Type().Field(i).Name, i)
		}
		v.Field(i).SetUint(2 * v.Field(i).Uint())
	}
	if got := double.Minus(s); got != s {
		t.Errorf("twice %+v minus that is %+v", s, got)
	}
}

// TestStatisticsOfOtherLengths decodes the counters of peers of other versions, which have more
// counters or fewer.
func TestStatisticsOfOtherLengths(t *testing.T) {
	all := AppendStatistics(nil, goldenStatistics)
	if got, err := DecodeStatistics(append(all, 1, 2, 3, 4, 5, 6, 7, 8)); err != nil || got != goldenStatistics {
		t.Errorf("longer: %+v, %v", got, err)
	}
	want := Statistics{RxFrames: goldenStatistics.RxFrames, RxBytes: goldenStatistics.RxBytes}
	if got, err := DecodeStatistics(all[:16]); err != nil || got != want {
		t.Errorf("shorter: %+v, %v", got, err)
	}
	b, err := json.Marshal(Statistics{RxTooLong: 6, TxVLAN: 11})
	const text = `{"rx_frames":0,"rx_bytes":0,"tx_frames":0,"tx_bytes":0,"rx_dropped":0,"rx_too_long":6,"rx_invalid":0,"rx_filtered":0,"tx_dropped":0,"tx_source":0,"tx_vlan":11}`
	if err != nil || string(b) != text {
		t.Errorf("%s, %v", b, err)
	}
}
