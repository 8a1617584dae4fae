package policy

import (
	"fmt"
	"net/netip"
	"strings"
)

// ParseIPs parses an IP address such as 192.0.2.10, or a prefix such as
// 2001:db8::/64.
func ParseIPs(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if !strings.Contains(s, "/") {
		var a netip.Addr
		if a, err = netip.ParseAddr(s); err == nil && a.Zone() != "" {
			err = fmt.Errorf("it has a zone")
		}
		p = netip.PrefixFrom(a, a.BitLen())
	}
	switch {
	case err != nil || p.Addr().Is4In6():
		return netip.Prefix{}, fmt.Errorf("%q is no IP address; use any, addresses such as 192.0.2.10, or prefixes such as 2001:db8::/64", s)
	case p.Masked() != p:
		return netip.Prefix{}, fmt.Errorf("%q has bits behind its prefix; use %v or %v", s, p.Masked(), p.Addr())
	case p.Addr().IsMulticast():
		return netip.Prefix{}, fmt.Errorf("%q is a group; use addresses that a host sends from", s)
	}
	return p, nil
}
