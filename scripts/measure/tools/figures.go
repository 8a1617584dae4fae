// Package tools reads what iperf3 and ping print.
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

// Filters make figures, none of which may be zero, of what programs print. What
// the receiver of iperf3 has received counts.
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
	// ms that a host's direct connection took to be made, and frames that the host has
	// sent through the I/O unit
	"direct": direct,
}

// TCP is the throughput of iperf3 in a second from a namespace to an address, in Mbit/s.
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

// Ping sends echo requests from a namespace, that far apart, and returns the round
// trips of those that were answered in us, sorted.
func Ping(ctx context.Context, ns, address string, n int, apart time.Duration) ([]float64, error) {
	out, err := exec.CommandContext(ctx, "ip", "netns", "exec", ns, "ping", "-n", "-c", strconv.Itoa(n),
		"-i", strconv.FormatFloat(apart.Seconds(), 'f', -1, 64), "-W", "2", address).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("ping: %w: %s", err, out)
	}
	return roundTrips(bytes.NewReader(out))
}

// roundTrips reads the answers that ping prints.
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

// Percentile is what this part of sorted values does not exceed.
func Percentile(v []float64, part float64) float64 {
	return v[min(int(float64(len(v))*part), len(v)-1)]
}

// ping prints the median round trip, and that which one in a hundred exceeds, in us,
// and how many there were. The first ones, and those in which a thread had to be woken
// late, would decide a mean.
func ping(r io.Reader) (string, error) {
	times, err := roundTrips(r)
	if err != nil {
		return "", err
	}
	return positive(results.Median(times), Percentile(times, 0.99), float64(len(times)))
}

// direct reads a host's status.
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

// positive prints figures, of which none may be zero.
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
