package main

import (
	"testing"
	"time"
)

func TestParseStat(t *testing.T) {
	got, err := parseStat("cpu  1 2 3 100 200 10 20 7 0 0\ncpu0 9 9 9 9 9 9 9 9 0 0\n")
	want := times{busy: 360 * time.Millisecond, idle: 3 * time.Second, stolen: 70 * time.Millisecond}
	if err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []string{"", "cpu0 1 2 3 4 5 6 7 8\n", "cpu 1 2 3\n", "cpu 1 2 3 x 5 6 7 8 9\n"} {
		if _, err := parseStat(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
	if _, err := busy(); err != nil {
		t.Error(err)
	}
}

func TestParsePing(t *testing.T) {
	r := newResults()
	sink := r.sink("ping", ours, 56)
	const good = "--- 10.78.0.1 ping statistics ---\n100 packets transmitted, 100 received, 0% packet loss, time 198ms\nrtt min/avg/max/mdev = 0.021/0.034/0.093/0.008 ms\n"
	if err := parsePing(good, sink); err != nil {
		t.Fatal(err)
	}
	if rows := r.rows(); len(rows) != 1 || rows[0].Median != 34 || rows[0].Unit != "µs" {
		t.Errorf("%+v", rows)
	}
	for _, bad := range []string{
		"", "100 packets transmitted, 99 received, 1% packet loss\nrtt min/avg/max/mdev = 0.021/0.034/0.093/0.008 ms\n",
		"100 packets transmitted, 100 received, 0% packet loss\n",
	} {
		if err := parsePing(bad, sink); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}
