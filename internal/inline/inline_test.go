package inline

import (
	"slices"
	"syscall"
	"testing"

	"github.com/splitnic/splitnic/fabric"
)

// TestLimits creates queue pairs on devices that refuse inline data, grant less, or have other
// reasons to refuse a queue pair.
func TestLimits(t *testing.T) {
	over := func(most int, no syscall.Errno) func(int) (int, syscall.Errno) {
		return func(n int) (int, syscall.Errno) {
			if n > most {
				return 0, no
			}
			return n, 0
		}
	}
	for _, c := range []struct {
		name   string
		driver string
		try    func(int) (int, syscall.Errno)
		want   int
		no     syscall.Errno
		tries  []int // of the first queue pair
		again  []int // of the second one
	}{
		{"everything", "mlx5_core", over(1024, syscall.EINVAL), 220, 0, []int{220}, []int{220}},
		{"more than asked for", "", func(n int) (int, syscall.Errno) { return n + 4, 0 }, 220, 0, []int{220}, []int{220}},
		{"refused", "bnxt_en", over(96, syscall.EINVAL), 96, 0, []int{220, 128, 96}, []int{96}},
		{"lowered", "hns", func(n int) (int, syscall.Errno) { return min(n, 32), 0 }, 32, 0, []int{220}, []int{32}},
		{"none", "", over(0, syscall.EINVAL), 0, 0, []int{220, 128, 96, 64, 32, 0}, []int{0}},
		{"errno forgotten", "", over(101, syscall.EIO), 96, 0, []int{220, 128, 96}, []int{96}},
		{"short of memory", "", over(128, syscall.ENOMEM), 128, 0, []int{220, 128}, []int{220, 128}},
		{"flag ignored", "mana", over(1024, syscall.EINVAL), 0, 0, []int{0}, []int{0}},
		{"flag ignored too", "vmw_pvrdma", over(1024, syscall.EINVAL), 0, 0, []int{0}, []int{0}},
		{"another reason", "", over(-1, syscall.EINVAL), 0, syscall.EINVAL, []int{220, 128, 96, 64, 32, 0},
			[]int{220, 128, 96, 64, 32, 0}},
		{"cgroup", "", over(-1, syscall.EAGAIN), 0, syscall.EAGAIN, []int{220}, []int{220}},
		{"transport", "", over(-1, syscall.EOPNOTSUPP), 0, syscall.EOPNOTSUPP, []int{220}, []int{220}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var l Limits
			s := Shape{fabric.RC, 64, 64, 6, 220}
			for _, want := range [][]int{c.tries, c.again} {
				var tries []int
				got, no := l.Create(c.driver, s, func(n int) (int, syscall.Errno) {
					tries = append(tries, n)
					return c.try(n)
				})
				if got != c.want || no != c.no || !slices.Equal(tries, want) {
					t.Errorf("%d bytes, %v, after trying %v; want %d, %v, after %v", got, no, tries, c.want, c.no, want)
				}
			}
		})
	}
}

// TestShapes expects that the limit of one shape says nothing about another.
func TestShapes(t *testing.T) {
	var l Limits
	for _, sge := range []int{13, 6, 13, 6} {
		got, no := l.Create("", Shape{fabric.RC, 64, 64, sge, 220}, func(n int) (int, syscall.Errno) {
			if n > 16*sge {
				return 0, syscall.EINVAL
			}
			return n, 0
		})
		if want := map[int]int{13: 128, 6: 96}[sge]; got != want || no != 0 {
			t.Errorf("%d pieces: %d bytes, %v; want %d", sge, got, no, want)
		}
	}
}
