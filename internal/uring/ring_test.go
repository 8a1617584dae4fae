package uring_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/internal/uring"
)

// pair returns two connected sockets that preserve the boundaries of frames.
func pair(t testing.TB) (near, far int) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
	})
	return fds[0], fds[1]
}

// open makes a ring. If the kernel does not support rings, it skips the test or fails it,
// depending on SPLITNIC_REQUIRE.
func open(t testing.TB, file int) *uring.Ring {
	t.Helper()
	r, err := uring.New(file)
	if errors.Is(err, uring.ErrUnsupported) {
		testenv.Missing(t, "uring", "%v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for range 2 {
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	return r
}

func frame(i, n int) []byte { return bytes.Repeat([]byte{byte(i), byte(i >> 8)}, (n+1)/2)[:n] }

// TestRing writes and reads frames with rings, in runs of random sizes.
func TestRing(t *testing.T) {
	testenv.NoLeaks(t)
	near, far := pair(t)
	if err := unix.SetsockoptInt(near, unix.SOL_SOCKET, unix.SO_SNDBUF, 8<<20); err != nil {
		t.Fatal(err)
	}
	w, r := open(t, near), open(t, far)
	random := rand.New(rand.NewPCG(1, 2))
	bufs := make([][]byte, uring.Size)
	for i := range bufs {
		bufs[i] = make([]byte, 2000)
	}
	number := 0
	for range 300 {
		n := 1 + random.IntN(uring.Size)
		var sent [][]byte
		for range n {
			f := frame(number, 2+random.IntN(1500))
			if cut := random.IntN(len(f)); cut == 0 {
				w.Write(f)
			} else {
				w.Writev(f[:cut], f[cut:])
			}
			sent = append(sent, f)
			number++
		}
		before := w.Enters()
		for i, res := range w.Run() {
			if int(res) != len(sent[i]) {
				t.Fatalf("write %d of %d: %d instead of %d", i, n, res, len(sent[i]))
			}
		}
		if w.Enters() != before+1 {
			t.Fatalf("%d writes took %d system calls", n, w.Enters()-before)
		}
		for len(sent) > 0 {
			k := 1 + random.IntN(uring.Size)
			for i := range k {
				r.Read(bufs[i])
			}
			results := r.Run()
			if len(results) != k {
				t.Fatalf("%d results of %d reads", len(results), k)
			}
			for i, res := range results {
				if i >= len(sent) {
					if res != -int32(unix.EAGAIN) {
						t.Fatalf("reading nothing: %d", res)
					}
					continue
				}
				if int(res) != len(sent[i]) || !bytes.Equal(bufs[i][:res], sent[i]) {
					t.Fatalf("read %d of %d: %d bytes instead of %d", i, k, res, len(sent[i]))
				}
			}
			sent = sent[min(k, len(sent)):]
		}
	}
	if got := r.Run(); len(got) != 0 {
		t.Errorf("%d results of nothing", len(got))
	}
}

// TestRingFull writes more than there is room for. It expects EAGAIN for the rest.
func TestRingFull(t *testing.T) {
	near, far := pair(t)
	w := open(t, near)
	f := frame(7, 60000)
	for range uring.Size {
		w.Write(f)
	}
	results := slices.Clone(w.Run())
	done := slices.Index(results, -int32(unix.EAGAIN))
	if done < 1 || slices.ContainsFunc(results[done:], func(res int32) bool { return res != -int32(unix.EAGAIN) }) {
		t.Fatalf("results %v", results)
	}
	buf := make([]byte, 70000)
	for i := range done {
		if n, err := unix.Read(far, buf); err != nil || n != len(f) {
			t.Fatalf("frame %d: %d bytes, %v", i, n, err)
		}
	}
	if _, err := unix.Read(far, buf); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("after %d frames: %v", done, err)
	}
}

// TestRingErrors has operations fail between others that succeed.
func TestRingErrors(t *testing.T) {
	near, far := pair(t)
	r := open(t, near)
	if _, err := unix.Write(far, frame(1, 100)); err != nil {
		t.Fatal(err)
	}
	if err := unix.Shutdown(near, unix.SHUT_WR); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 200)
	r.Write(frame(1, 10))
	r.Read(buf)
	r.Writev(frame(1, 10), frame(2, 10))
	if got, want := slices.Clone(r.Run()), []int32{-int32(unix.EPIPE), 100, -int32(unix.EPIPE)}; !slices.Equal(got, want) {
		t.Errorf("results %v, want %v", got, want)
	}
}

// TestRingThreads uses a ring from one goroutine after another, and so from several threads.
func TestRingThreads(t *testing.T) {
	near, far := pair(t)
	w := open(t, near)
	buf := make([]byte, 200)
	for i := range 50 {
		done := make(chan error)
		go func() {
			w.Write(frame(i, 100))
			if res := w.Run()[0]; res != 100 {
				done <- fmt.Errorf("result %d", res)
			}
			close(done)
		}()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if n, err := unix.Read(far, buf); err != nil || !bytes.Equal(buf[:n], frame(i, 100)) {
			t.Fatalf("frame %d: %d bytes, %v", i, n, err)
		}
	}
}

// TestRingLetsGo closes a ring and its file. It expects the file to be closed at once.
func TestRingLetsGo(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[0])
	r := open(t, fds[1])
	r.Write(make([]byte, 1))
	if res := r.Run()[0]; res != 1 {
		t.Fatal(res)
	}
	if err := errors.Join(r.Close(), unix.Close(fds[1])); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 10)
	if n, err := unix.Read(fds[0], buf); n != 1 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	if n, err := unix.Read(fds[0], buf); n != 0 || err != nil {
		t.Errorf("behind the end: %d bytes, %v", n, err)
	}
}

// TestRingUnsupported makes a ring for a file that cannot be read without waiting, and for an
// invalid descriptor.
func TestRingUnsupported(t *testing.T) {
	testenv.NoLeaks(t)
	f, err := os.Open("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := uring.New(int(f.Fd())); !errors.Is(err, uring.ErrUnsupported) {
		t.Errorf("a file that has no RWF_NOWAIT: %v", err)
	}
	if _, err := uring.New(-1); err == nil {
		t.Error("a ring for no file")
	}
}

func TestRingAllocs(t *testing.T) {
	near, far := pair(t)
	w, r := open(t, near), open(t, far)
	f, buf := frame(1, 100), make([]byte, 200)
	if n := testing.AllocsPerRun(100, func() {
		for range 10 {
			w.Write(f)
			w.Writev(f[:50], f[50:])
			r.Read(buf)
			r.Read(buf)
		}
		w.Run()
		r.Run()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
