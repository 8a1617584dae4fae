package discovery

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// scheme begins an entry that is the name of SRV records.
const scheme = "srv:"

// maxName is the length of the longest name as text (RFC 1035 section 2.3.4), without a dot
// at its end.
const maxName = 253

var errAddress = errors.New("must be HOST or HOST:PORT, such as 10.0.0.1, u1.example:7580 or [fd00::1]:7580")

var errName = errors.New("must be labels of 1 to 63 letters, digits, '-' and '_', with dots between them, " +
	"such as srv:_splitnic._tcp.fabric.example")

// ByDNS returns the name of the SRV records for an entry of a list of I/O units. It is not
// ok if the entry is an address; srv:7580 is the address of a machine named srv.
func ByDNS(entry string) (name string, ok bool) {
	if len(entry) < len(scheme) || !strings.EqualFold(entry[:len(scheme)], scheme) {
		return "", false
	}
	name = entry[len(scheme):]
	return name, name == "" || strings.Trim(name, "0123456789") != ""
}

// Several reports whether a list of entries may have more than one I/O unit.
func Several(entries []string) bool {
	if len(entries) != 1 {
		return len(entries) > 1
	}
	_, ok := ByDNS(entries[0])
	return ok
}

// Named reports whether a list of entries has a name of SRV records.
func Named(entries []string) bool {
	return slices.ContainsFunc(entries, func(entry string) bool {
		_, ok := ByDNS(entry)
		return ok
	})
}

// Check returns an error if an entry is neither a possible DNS name nor an address.
func Check(entry string) error {
	if name, ok := ByDNS(entry); ok {
		if !validName(strings.TrimSuffix(name, ".")) {
			return fmt.Errorf("%q is not a DNS name: %w", entry, errName)
		}
		return nil
	}
	host, port, err := net.SplitHostPort(entry)
	if err != nil { // it has no port, which session.WithPort adds
		host, port = entry, "1"
		if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") {
			host = host[1 : len(host)-1]
		}
	}
	switch {
	case !validHost(host), !validPort(port) && strings.Trim(port, "0123456789") != "":
		return fmt.Errorf("%q is not an address: %w", entry, errAddress)
	case !validPort(port):
		return fmt.Errorf("%q has a wrong port: must be 1 to 65535, such as 7580", entry)
	case !ofMachine(host):
		return fmt.Errorf("%q is the address of no machine: must be an I/O unit's, such as 10.0.0.1, "+
			"or with the link's netdevice fe80::1%%eth0", entry)
	}
	return nil
}

// ofMachine reports whether host is a name, or an address that one machine has.
func ofMachine(host string) bool {
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return true
	}
	if ip.Is6() && ip.IsLinkLocalUnicast() {
		return ip.Zone() != ""
	}
	return !ip.IsUnspecified() && !ip.IsMulticast() && ip != netip.AddrFrom4([4]byte{255, 255, 255, 255})
}

// validHost reports whether host can be an IP address or the name of a machine. A name that
// consists only of numbers and dots is a mistyped IP address.
func validHost(host string) bool {
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	name := strings.TrimSuffix(host, ".")
	return validName(name) && (!strings.Contains(name, ".") || strings.Trim(name, "0123456789.") != "")
}

// validPort reports whether port can be a port number or the name of a service.
func validPort(port string) bool {
	if n, err := strconv.ParseUint(port, 10, 16); err == nil {
		return n > 0
	}
	return validName(port) && strings.Trim(port, "-0123456789") != ""
}

// validName reports whether name can be the name of a host or of SRV records, without
// escapes.
func validName(name string) bool {
	if len(name) > maxName {
		return false
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 || strings.ContainsFunc(label, func(r rune) bool {
			letter, digit := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z', r >= '0' && r <= '9'
			return !letter && !digit && r != '-' && r != '_'
		}) {
			return false
		}
	}
	return true
}
