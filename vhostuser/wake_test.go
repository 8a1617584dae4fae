package vhostuser

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/vnet"
)

// sleep waits until a descriptor is readable, and fails the test after a minute.
func sleep(t *testing.T, fd int) {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, 60_000)
		if err == unix.EINTR {
			continue
		}
		if n != 1 || err != nil {
			t.Fatalf("nobody wakes: %v", err)
		}
		return
	}
}

// TestWakes kicks as a driver only when the device asks for a kick, and sleeps as a user of the
// port whenever there is nothing to do. It expects all frames to pass: no wakeup may be lost.
func TestWakes(t *testing.T) {
	const frames = 20000
	for name, feats := range kinds {
		for number := range 2 {
			t.Run(fmt.Sprint(name, " ", number), func(t *testing.T) {
				g := newGuest(t, feats, number, 1)
				kick, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
				if err != nil {
					t.Fatal(err)
				}
				defer unix.Close(kick)
				q, err := newQueue(nil)
				if err != nil {
					t.Fatal(err)
				}
				defer q.close()
				q.reads.Store(&[]*vring{g.v})
				q.writes.Store(g.v)
				for _, w := range []*waker{q.in, q.out} {
					if err := w.hear(kick); err != nil {
						t.Fatal(err)
					}
				}
				chains := frames
				if number == 0 {
					chains *= 3 // three chains for each frame
				}
				kicks, stop := make(chan int, 1), make(chan struct{})
				var driver sync.WaitGroup
				defer driver.Wait()
				defer close(stop)
				driver.Go(func() {
					var fence common
					r, n := rand.New(rand.NewPCG(1, 2)), 0
					b := []buffer{{guestBase + buffersAt, 100}}
					for added, taken := 0, 0; taken < chains; {
						select {
						case <-stop:
							return
						default:
						}
						old := g.avail
						for range 1 + r.IntN(8) {
							if added-taken < ringSize && added < chains {
								g.add(b, false)
								added++
							}
						}
						fence.barrier()
						if g.avail != old && g.wantsKick(old) {
							n++
							_, _ = unix.Write(kick, one)
						}
						for {
							if _, ok := g.used(); !ok {
								break
							}
							taken++
						}
						for range r.IntN(4) {
							runtime.Gosched()
						}
					}
					kicks <- n
				})
				reads, writes := readOps(8), make([]vnet.WriteOp, 8)
				for i := range writes {
					writes[i].Head = make([]byte, 250)
				}
				for done := 0; done < frames; {
					if number == 1 {
						n := q.ReadFrames(reads)
						if errors.Is(reads[n-1].Err, errAgain) {
							n--
							sleep(t, q.FD())
						}
						done += n
						continue
					}
					n := q.WriteFrames(writes[:min(len(writes), frames-done)])
					if done += n; n == 0 {
						sleep(t, q.WriteFD())
					}
				}
				t.Logf("%d kicks for %d frames", <-kicks, frames)
				if err := g.ended(); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// TestWakesOthers writes a frame to one queue that needs more buffers than are available. Another
// queue with the same ring, or an announcement, takes the available buffer. It expects the first
// queue to be woken when there are more buffers.
func TestWakesOthers(t *testing.T) {
	for name, feats := range kinds {
		for _, announced := range []bool{false, true} {
			t.Run(fmt.Sprint(name, map[bool]string{true: ", announced"}[announced]), func(t *testing.T) {
				a := Address{Path: filepath.Join(t.TempDir(), "s")}
				d, err := Open(Config{Address: a, Pairs: 2, Offloads: vnet.AllOffloads, Log: slog.New(slog.DiscardHandler)})
				if err != nil {
					t.Fatal(err)
				}
				defer d.Close()
				g := newDriver(t, feats)
				g.start(meet(t, a)())
				post := func() { g.post(0, []buffer{g.rings[0].alloc(100)}) }
				post()
				first, other := d.Queues()[0], d.Queues()[1]
				long, short := []vnet.WriteOp{{Head: make([]byte, 250)}}, []vnet.WriteOp{{Head: make([]byte, 70)}}
				if n := first.WriteFrames(long); n != 0 || !errors.Is(long[0].Err, errAgain) {
					t.Fatalf("%d frames are written: %v", n, long[0].Err)
				}
				if announced {
					err = d.Announce(short[0].Head)
				} else if n := other.WriteFrames(short); n != 1 {
					t.Fatalf("%d frames are written: %v", n, short[0].Err)
				}
				if _, _, ok := g.take(0); err != nil || !ok {
					t.Fatalf("the buffer is not given back: %v", err)
				}
				for range 3 {
					post()
				}
				sleep(t, first.WriteFD())
				if n := first.WriteFrames(long); n != 1 || long[0].Err != nil {
					t.Errorf("%d frames are written: %v", n, long[0].Err)
				}
			})
		}
	}
}
