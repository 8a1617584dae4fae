// Package tools reads figures from the output of programs such as iperf3 and ping.
package tools

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/splitnic/splitnic/scripts/measure/results"
)

// iperfDocument is the part of iperf3's JSON that is used here.
type iperfDocument struct {
	Error string `json:"error"`
	Start struct {
		Test struct {
			BlockSize float64 `json:"blksize"` // bytes in a datagram
		} `json:"test_start"`
	} `json:"start"`
	End struct {
		Received struct {
			Seconds       float64 `json:"seconds"`
			BitsPerSecond float64 `json:"bits_per_second"`
			Packets       float64 `json:"packets"`
			Lost          float64 `json:"lost_packets"`
		} `json:"sum_received"`
	} `json:"end"`
}

// Filters make figures from the output of programs. None of the figures may be zero. For iperf3,
// what the receiver has received counts.
var Filters = map[string]func(io.Reader) (string, error){
	// Mbit/s
	"iperf-tcp": func(r io.Reader) (string, error) {
		d, err := iperfRead(r)
		if err != nil {
			return "", err
		}
		return positive(d.End.Received.BitsPerSecond / 1e6)
	},
	// Mbit/s and datagrams per second
	"iperf-udp": func(r io.Reader) (string, error) {
		d, err := iperfRead(r)
		if err != nil {
			return "", err
		}
		got := d.End.Received
		if got.Seconds <= 0 {
			return "", errors.New("it took no time")
		}
		rate := (got.Packets - got.Lost) / got.Seconds
		return positive(rate*d.Start.Test.BlockSize*8/1e6, rate)
	},
	"ping": ping,
	// time in ms to set up a host's direct connection, and number of frames that the host has sent
	// through the I/O unit
	"direct": direct,
}

// TCP runs iperf3 from a namespace to an address for a second, and returns the throughput in
// Mbit/s.
func TCP(ctx context.Context, ns, address string) (float64, error) {
	out, err := exec.CommandContext(ctx, "ip", "netns", "exec", ns, "iperf3", "-c", address, "-t", "1", "-J").Output()
	if err != nil {
		return 0, fmt.Errorf("iperf3: %w: %s", err, out)
	}
	d, err := iperfRead(bytes.NewReader(out))
	if err == nil && d.End.Received.BitsPerSecond <= 0 {
		err = errors.New("iperf3: nothing was received")
	}
	return d.End.Received.BitsPerSecond / 1e6, err
}

func iperfRead(r io.Reader) (d iperfDocument, err error) {
	if err := json.NewDecoder(r).Decode(&d); err != nil {
		return d, fmt.Errorf("iperf3's output: %w", err)
	}
	if d.Error != "" {
		return d, fmt.Errorf("iperf3: %s", d.Error)
	}
	return d, nil
}

// Ping sends n echo requests from a namespace, apart from each other by the time apart. It
// returns the round-trip times of the answered requests in us, sorted.
func Ping(ctx context.Context, ns, address string, n int, apart time.Duration) ([]float64, error) {
	out, err := exec.CommandContext(ctx, "ip", "netns", "exec", ns, "ping", "-n", "-c", strconv.Itoa(n),
		"-i", strconv.FormatFloat(apart.Seconds(), 'f', -1, 64), "-W", "2", address).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("ping: %w: %s", err, out)
	}
	return roundTrips(bytes.NewReader(out))
}

// roundTrips reads the round-trip times that ping prints. It returns them in us, sorted.
func roundTrips(r io.Reader) ([]float64, error) {
	var times []float64
	for s := bufio.NewScanner(r); s.Scan(); {
		_, after, ok := strings.Cut(s.Text(), " time=")
		if !ok {
			continue
		}
		text, _, _ := strings.Cut(after, " ")
		ms, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, fmt.Errorf("ping's output: %w", err)
		}
		times = append(times, ms*1000)
	}
	if len(times) == 0 {
		return nil, errors.New("no answer")
	}
	slices.Sort(times)
	return times, nil
}

// ping returns the median of the round-trip times and the time that one in a hundred exceeds, in
// us, and the number of round trips. It does not use the mean, which would depend on the first
// round trips, and on those in which a thread was woken late.
func ping(r io.Reader) (string, error) {
	times, err := roundTrips(r)
	if err != nil {
		return "", err
	}
	return positive(results.Median(times), results.Percentile(times, 0.99), float64(len(times)))
}

// direct reads the figures of a direct connection from a host's status.
func direct(r io.Reader) (string, error) {
	var all []struct {
		Direct struct {
			Connections []struct {
				State string  `json:"state"`
				Took  float64 `json:"took_ns"`
			} `json:"connections"`
		} `json:"direct"`
		Traffic struct {
			Channels []struct {
				Frames float64 `json:"tx_frames"`
			} `json:"channels"`
		} `json:"traffic"`
	}
	if err := json.NewDecoder(r).Decode(&all); err != nil {
		return "", fmt.Errorf("a host's status: %w", err)
	}
	if len(all) != 1 || len(all[0].Direct.Connections) != 1 || all[0].Direct.Connections[0].State != "established" {
		return "", errors.New("no direct connection in use")
	}
	frames := 0.0
	for _, c := range all[0].Traffic.Channels {
		frames += c.Frames
	}
	return positive(all[0].Direct.Connections[0].Took/1e6, frames)
}

// positive formats figures. It returns an error if a figure is not above 0.
func positive(v ...float64) (string, error) {
	var b strings.Builder
	for _, f := range v {
		if !(f > 0) {
			return "", fmt.Errorf("a figure is %v, must be above 0", f)
		}
		fmt.Fprintf(&b, "%.4f ", f)
	}
	return strings.TrimSuffix(b.String(), " "), nil
}
