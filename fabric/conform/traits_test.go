package conform_test

import (
	"testing"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/fabric/conform"
)

// TestTraitsOf expects that a driver's name gives the traits of its family, and the limits those of
// the device.
func TestTraitsOf(t *testing.T) {
	windows := fabric.Limits{Windows: true}
	for driver, want := range map[string]conform.Traits{
		"mlx5_core": {},
		"unheard":   {},
		"erdma":     {StrictPosts: true, NoUC: true},
		"mana":      {StrictPosts: true, NoUC: true, SilentFlushes: true, NoSolicited: true, NoQuery: true},
		"bnxt_en":   {NoUC: true, NoWindowAlloc: true, SilentFlushes: true},
		"ice":       {NoUC: true, ArmsAny: true},
	} {
		for _, l := range []fabric.Limits{windows, {}} {
			want.NoWindows = !l.Windows
			if got, err := conform.TraitsOf(driver, "", l); got != want || err != nil {
				t.Errorf("%s: %+v, %v, want %+v", driver, got, err, want)
			}
		}
	}
	if got, err := conform.TraitsOf("rdma_rxe", "6.12", windows); !got.QuietFlushes || err != nil {
		t.Errorf("Soft-RoCE: %+v, %v", got, err)
	}
}

func TestSoftRoCE(t *testing.T) {
	for _, c := range []struct {
		release          string
		noWindows, quiet bool
		badLKey          fabric.Status
	}{
		{"5.10.0-32-amd64", true, false, fabric.StatusLocQPOpErr},
		{"5.14.0-503.el9.x86_64", false, false, fabric.StatusLocQPOpErr},
		{"6.1.0-56-amd64", false, false, fabric.StatusLocQPOpErr},
		{"6.12.107+deb13-amd64", false, true, fabric.StatusWRFlushErr},
		{"7.2.13+deb14-amd64", false, true, fabric.StatusWRFlushErr},
		{"7.3-rc1", false, true, fabric.StatusWRFlushErr},
	} {
		k, err := conform.KernelOf(c.release)
		if err != nil {
			t.Fatal(err)
		}
		got := conform.SoftRoCE(k)
		if got.NoWindows != c.noWindows || got.QuietFlushes != c.quiet || got.BadLKey != c.badLKey ||
			(got.BadBind == fabric.StatusWRFlushErr) != c.quiet || !got.LateReceives ||
			!got.LostRefusals {
			t.Errorf("%s: %+v", c.release, got)
		}
	}
	for _, release := range []string{"", "linux", "6", "6.x"} {
		if k, err := conform.KernelOf(release); err == nil {
			t.Errorf("%q is taken for %v", release, k)
		}
	}
}
