package native

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/pprof"
	"strings"
)

// A subject that moves frames itself is a process of its own, so that what it
// costs can be told from what the measuring costs. It obeys commands on its
// standard input and answers each with a line of JSON:
//
//	stats        its counters
//	profile FILE begins a profile of its use of processors
//	unprofile    ends it
//
// It ends when its standard input does.

// serve is the process of a subject in a topology.
func serve(s subject, st *topology) error {
	signal.Ignore(os.Interrupt) // the process that measures ends this one
	open := newRelay
	if s.what == splitnic {
		open = newEndpoints
	}
	m, err := open(s, st)
	if err != nil {
		return err
	}
	return errors.Join(carryOut(m, os.Stdin, os.Stdout), m.close())
}

// carryOut carries out commands until there are no more.
func carryOut(m mover, in io.Reader, out io.Writer) error {
	answers := json.NewEncoder(out)
	if err := answers.Encode(reply{}); err != nil {
		return err
	}
	var profile *os.File
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		var r reply
		var err error
		command, arg, _ := strings.Cut(lines.Text(), " ")
		switch command {
		case "stats":
			before := mallocs()
			if r.Counters, err = m.counters(); err == nil {
				r.Counters.MallocsBefore, r.Counters.MallocsAfter = before, mallocs()
			}
		case "profile":
			if profile, err = os.Create(arg); err == nil {
				err = pprof.StartCPUProfile(profile)
			}
		case "unprofile":
			pprof.StopCPUProfile()
			err = profile.Close()
		default:
			err = fmt.Errorf("unknown command %q", command)
		}
		if err != nil {
			r.Error = err.Error()
		}
		if err := answers.Encode(r); err != nil {
			return err
		}
	}
	return lines.Err()
}

func mallocs() uint64 {
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	return mem.Mallocs
}

// Serve is the process of a subject between the network namespaces and on the
// device in the arguments.
func Serve(name string, args []string) error {
	s, ok := parseSubject(name)
	if !ok || len(args) != 4 {
		return errors.New("serve is for the command itself, and for scripts: SUBJECT HOST MIDDLE LAN DEVICE")
	}
	return serve(s, &topology{host: args[0], middle: args[1], lan: args[2], nic: args[3], hostDev: "sn0"})
}
