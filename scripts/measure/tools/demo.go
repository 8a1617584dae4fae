package tools

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
)

// document is the content of build/demo.json.
type document struct {
	Device string `json:"device"`
	Mode   string `json:"mode"` // native, kvm or tcg
	Kernel string `json:"kernel"`
	Ping   struct {
		Sent     int     `json:"sent"`
		Received int     `json:"received"`
		RTT      float64 `json:"rtt_us"`
	} `json:"ping"`
	DHCP struct {
		Address string `json:"address"`
	} `json:"dhcp"`
	HTTP struct {
		Bytes int  `json:"bytes"`
		Equal bool `json:"sha256_equal"`
	} `json:"http"`
	TCP struct {
		HostToLAN float64 `json:"host_to_lan_mbps"`
		LANToHost float64 `json:"lan_to_host_mbps"`
	} `json:"tcp"`
	Raw struct {
		WriteBW float64 `json:"ib_write_bw_mbps"`
	} `json:"raw"`
	Counters struct {
		RNR   int `json:"rnr"`
		Retry int `json:"retry"`
	} `json:"counters"`
	Seconds int `json:"seconds"`
}

// Demo reads the results of the demonstration from file in. It prints a table, and writes a JSON
// document to file out. It fails if a result is missing, or says that something did not work.
func Demo(in, out string) error {
	f, err := os.Open(in)
	if err != nil {
		return err
	}
	defer f.Close()
	d, err := parseDemo(f)
	if err != nil {
		return fmt.Errorf("%s: %w", in, err)
	}
	text, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(out, append(text, '\n'), 0o644); err != nil {
		return err
	}
	demoTable(os.Stdout, d)
	return verdict(d)
}

// parseDemo reads lines with a name and a value. A number that occurs several times counts with
// its mean.
func parseDemo(r io.Reader) (document, error) {
	values := map[string][]string{}
	for s := bufio.NewScanner(r); s.Scan(); {
		name, value, _ := strings.Cut(s.Text(), " ")
		values[name] = append(values[name], value)
	}
	var errs []error
	text := func(name string) string {
		v := values[name]
		if len(v) == 0 || v[0] == "" {
			errs = append(errs, fmt.Errorf("the demonstration did not get as far as %s", name))
			return ""
		}
		return v[0]
	}
	mean := func(name string) float64 {
		if text(name) == "" {
			return 0
		}
		sum := 0.0
		for _, v := range values[name] {
			n, err := strconv.ParseFloat(v, 64)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", name, err))
			}
			sum += n
		}
		return sum / float64(len(values[name]))
	}
	var d document
	d.Device, d.Mode, d.Kernel = text("device"), text("mode"), text("kernel")
	d.Ping.Sent, d.Ping.Received, d.Ping.RTT = int(mean("ping_sent")), int(mean("ping_received")), mean("ping_rtt_us")
	d.DHCP.Address = text("dhcp_address")
	d.HTTP.Bytes, d.HTTP.Equal = int(mean("http_bytes")), text("http_sha256_equal") == "true"
	d.TCP.HostToLAN, d.TCP.LANToHost = mean("mbps_host_to_lan"), mean("mbps_lan_to_host")
	d.Raw.WriteBW = mean("mbps_raw")
	d.Counters.RNR, d.Counters.Retry = int(mean("rnr")), int(mean("retry"))
	d.Seconds = int(mean("seconds"))
	return d, errors.Join(errs...)
}

// verdict returns an error that says what did not work.
func verdict(d document) error {
	var errs []error
	if d.Ping.Received != d.Ping.Sent {
		errs = append(errs, fmt.Errorf("%d of %d pings were answered", d.Ping.Received, d.Ping.Sent))
	}
	if !d.HTTP.Equal {
		errs = append(errs, errors.New("the file that arrived is not the one that was sent"))
	}
	if d.Counters.RNR != 0 {
		errs = append(errs, fmt.Errorf("a receiver was not ready %d times", d.Counters.RNR))
	}
	return errors.Join(errs...)
}

func demoTable(w io.Writer, d document) {
	fmt.Fprintf(w, "\nsplitnic on %s (%s, Linux %s), in %d s\n\n", d.Device, d.Mode, d.Kernel, d.Seconds)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	defer tw.Flush()
	share := func(mbps float64) string { return fmt.Sprintf("%.0f %% of raw", 100*mbps/d.Raw.WriteBW) }
	fmt.Fprintf(tw, "  ping\t%d of %d\taverage %.2f ms\n", d.Ping.Received, d.Ping.Sent, d.Ping.RTT/1000)
	fmt.Fprintf(tw, "  DHCP\t%s\tleased from the LAN\n", d.DHCP.Address)
	fmt.Fprintf(tw, "  HTTP\t%d bytes\tsha256 equal: %v\n", d.HTTP.Bytes, d.HTTP.Equal)
	fmt.Fprintf(tw, "  TCP host to LAN\t%.1f Mbit/s\t%s\n", d.TCP.HostToLAN, share(d.TCP.HostToLAN))
	fmt.Fprintf(tw, "  TCP LAN to host\t%.1f Mbit/s\t%s\n", d.TCP.LANToHost, share(d.TCP.LANToHost))
	fmt.Fprintf(tw, "  raw ib_write_bw\t%.1f Mbit/s\t64 KiB, between the same devices, in turn with TCP\n", d.Raw.WriteBW)
	fmt.Fprintf(tw, "  receiver not ready\t%d\n", d.Counters.RNR)
	fmt.Fprintf(tw, "  retries\t%d\n", d.Counters.Retry)
}
