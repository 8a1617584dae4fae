package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
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

// iperf are the ways to read iperf3's JSON. Each counts what the receiver has
// received, and takes nothing received for a failure.
var iperf = map[string]func(io.Reader) (string, error){
	// Mbit/s
	"tcp": func(r io.Reader) (string, error) {
		d, err := iperfRead(r)
		if err != nil {
			return "", err
		}
		return positive(d.End.Received.BitsPerSecond / 1e6)
	},
	// Mbit/s and datagrams per second
	"udp": func(r io.Reader) (string, error) {
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

// ping reads the median round trip in us from the answers that ping prints: the
// first ones, and those in which a thread had to be woken late, would decide a
// mean.
func ping(r io.Reader) (string, error) {
	var times []float64
	for s := bufio.NewScanner(r); s.Scan(); {
		_, after, ok := strings.Cut(s.Text(), " time=")
		if !ok {
			continue
		}
		text, _, _ := strings.Cut(after, " ")
		ms, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return "", fmt.Errorf("ping's output: %w", err)
		}
		times = append(times, ms*1000)
	}
	if len(times) == 0 {
		return "", errors.New("no answer")
	}
	return positive(median(times))
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
