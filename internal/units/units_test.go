package units

import "testing"

func TestMemory(t *testing.T) {
	for s, want := range map[string]int64{
		"0": 0, "4096": 4096, "1k": 1 << 10, "64K": 64 << 10, "2M": 2 << 20, "2m": 2 << 20, "3Mi": 3 << 20, "3MiB": 3 << 20,
		"1GB": 1 << 30, "1.5Gi": 3 << 29, "1T": 1 << 40, "17B": 17,
		"": -1, "-1": -1, "M": -1, "1i": -1, "1iB": -1, "1kM": -1, "9999999999T": -1, "64X": -1, "1BB": -1, "1 G": -1,
		"1e3":  -1,
		"0x10": -1, "1.2.3": -1, "NaN": -1, "Inf": -1, "1_000": -1, ".": -1, "+1": -1,
	} {
		got, err := Memory(s)
		if want < 0 && err == nil || want >= 0 && (err != nil || got != want) {
			t.Errorf("%q: %d, %v, want %d", s, got, err, want)
		}
	}
}

func TestDecimal(t *testing.T) {
	for s, want := range map[string]int64{
		"0": 0, "100000": 1e5, "100k": 1e5, "100K": 1e5, "500m": 5e8, "1Gbit": 1e9, "100mbit": 1e8, "1T": 1e12, "2.5G": 25e8,
		"17bit": 17,
		"":      -1, "bit": -1, "1Gi": -1, "1Gibit": -1, "1GB": -1, "1Gbps": -1, "1B": -1, "1 G": -1, "1e9": -1, "-1G": -1,
	} {
		got, ok := Decimal(s, "bit")
		if want < 0 && ok || want >= 0 && (!ok || got != want) {
			t.Errorf("%q: %d, %t, want %d", s, got, ok, want)
		}
	}
}

// TestSize formats sizes, and parses them again.
func TestSize(t *testing.T) {
	for n, want := range map[uint64]string{
		0: "0B", 2: "2B", 1 << 13: "8KiB", 9985589: "9.523MiB", 1 << 31: "2GiB", 1<<30 + 1: "1GiB",
	} {
		got := Size(n)
		if got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
		if back, err := Memory(got); err != nil || float64(back) < 0.999*float64(n) || float64(back) > 1.001*float64(n) {
			t.Errorf("%s: %d, %v", got, back, err)
		}
	}
}

// TestAtLeast parses sizes that are rounded up.
func TestAtLeast(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0B", 1023: "1023B", 1 << 13: "8KiB", 9985589: "9.523MiB", 9985589 + 500: "9.524MiB", 1<<30 + 1: "1.001GiB",
		1<<20 - 1: "1024KiB",
	} {
		got := AtLeast(n)
		if got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
		if back, err := Memory(got); err != nil || back < n || float64(back) > 1.001*float64(n) {
			t.Errorf("%s: %d, %v, want %d or more", got, back, err, n)
		}
	}
}

func TestShort(t *testing.T) {
	for n, want := range map[float64]string{0: "0", 0.5001: "0.5001", 951.1: "951.1", 1299: "1.299k", 25e8: "2.5G"} {
		if got := Short(n); got != want {
			t.Errorf("%g: %s, want %s", n, got, want)
		}
	}
}

// FuzzUnits parses amounts as users may write them.
func FuzzUnits(f *testing.F) {
	for _, s := range []string{"0", "64M", "3MiB", "9999999999T", "1iB", "", "50k", "2.5Gbit", "1e9", "0x1p-2", "1_0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if n, err := Memory(s); err == nil && n < 0 {
			t.Errorf("%q is %d bytes", s, n)
		}
		if n, ok := Decimal(s, "bit"); ok && n < 0 {
			t.Errorf("%q is %d", s, n)
		}
	})
}
