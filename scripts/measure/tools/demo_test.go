package tools

import (
	"strings"
	"testing"
)

const good = `mode tcg
device rxe1
kernel 6.1
dhcp_address 10.0.0.5
ping_sent 20
ping_received 20
ping_rtt_us 1500
http_bytes 100
http_sha256_equal true
mbps_host_to_lan 100
mbps_lan_to_host 200
mbps_raw 400
mbps_host_to_lan 300
mbps_lan_to_host 200
mbps_raw 400
rnr 0
retry 2
seconds 60
`

func TestDemo(t *testing.T) {
	d, err := parseDemo(strings.NewReader(good))
	if err != nil {
		t.Fatal(err)
	}
	if d.TCP.HostToLAN != 200 || d.TCP.LANToHost != 200 || d.Raw.WriteBW != 400 || d.Ping.RTT != 1500 ||
		d.DHCP.Address != "10.0.0.5" || !d.HTTP.Equal || d.Counters.Retry != 2 || d.Seconds != 60 {
		t.Errorf("%+v", d)
	}
	if err := verdict(d); err != nil {
		t.Error(err)
	}
}

func TestDemoSaysWhatDidNotWork(t *testing.T) {
	if _, err := parseDemo(strings.NewReader(strings.Replace(good, "rnr 0\n", "", 1))); err == nil ||
		!strings.Contains(err.Error(), "rnr") {
		t.Errorf("without a result: %v", err)
	}
	if _, err := parseDemo(strings.NewReader(strings.Replace(good, "seconds 60", "seconds soon", 1))); err == nil {
		t.Error("a result that is no number was accepted")
	}
	for _, change := range [][2]string{{"received 20", "received 19"}, {"equal true", "equal false"}, {"rnr 0", "rnr 1"}} {
		d, err := parseDemo(strings.NewReader(strings.Replace(good, change[0], change[1], 1)))
		if err != nil {
			t.Fatal(err)
		}
		if verdict(d) == nil {
			t.Errorf("%s passed", change[1])
		}
	}
}
