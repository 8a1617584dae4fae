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

// A subject that moves frames itself has a separate process, so that the cost of the subject can
// be distinguished from the cost of measuring. The process executes commands from its standard
// input, and answers each command with a line of JSON:
//
//	stats        returns the counters
//	profile FILE begins a CPU profile
//	unprofile    ends the profile
//
// The process ends at the end of its standard input.

// serve runs in the process of a subject in a topology, until the end of standard input.
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

// carryOut writes an empty reply, which says that the subject is ready. Then it executes commands
// until the end of in.
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

// Serve runs in the process of a subject. args are the network namespaces of the host, the middle
// and the LAN, and the netdevice for the port on the LAN.
func Serve(name string, args []string) error {
	s, ok := parseSubject(name)
	if !ok || len(args) != 4 {
		return errors.New("serve is for the command itself, and for scripts: SUBJECT HOST MIDDLE LAN DEVICE")
	}
	return serve(s, &topology{host: args[0], middle: args[1], lan: args[2], nic: args[3], hostDev: "sn0"})
}
