package testenv

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// TestReadable calls Readable while signals interrupt the thread.
func TestReadable(t *testing.T) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(p[0])
	defer unix.Close(p[1])
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	thread, stop, stopped := unix.Gettid(), make(chan bool), make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				stopped <- nil
				return
			default:
			}
			if err := unix.Tgkill(unix.Getpid(), thread, unix.SIGURG); err != nil {
				stopped <- err
				return
			}
		}
	}()
	for range 100000 {
		if Readable(t, p[0], 0) || t.Failed() {
			t.Fatal("an empty pipe can be read")
		}
	}
	if _, err := unix.Write(p[1], []byte{1}); err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		if !Readable(t, p[0], 0) {
			t.Fatal("a pipe with a byte in it cannot be read")
		}
	}
	close(stop)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}
