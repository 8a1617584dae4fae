package main

import (
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/skel"
)

// TestForeignFields loads configurations as Multus, device plugins and runtimes complete them. What they
// put there is ignored, and other unknown fields are refused.
func TestForeignFields(t *testing.T) {
	for fields, refused := range map[string]string{
		`"deviceID": "0000:3b:00.2", "pciBusID": "0000:3b:00.2"`:                           "",
		`"args": {"cni": {"ips": ["192.0.2.1/24"]}}, "deviceID": ""`:                       "",
		`"runtimeConfig": {"mac": "", "deviceID": "x", "CNIDeviceInfoFile": "/var/run/x"}`: "",
		`"capabilities": {"mac": true, "deviceID": true}, "dns": {}, "ipam": {}`:           "",
		`"cni.dev/attachments": [], "example.com/x": 1`:                                    "",
		`"deviceId": "x"`: "deviceId",
		`"pciBusID": "x", "deviceID": "y", "mtuu": 1500`: "mtuu",
	} {
		c, err := load(&skel.CmdArgs{StdinData: []byte(
			`{"cniVersion": "1.1.0", "name": "fabric", "type": "splitnic-cni", ` + fields + `}`)})
		if err != nil {
			t.Errorf("%s: %v", fields, err)
			continue
		}
		err = c.allKnown()
		if (err != nil) != (refused != "") || err != nil && !strings.Contains(err.Error(), refused) {
			t.Errorf("%s: %v", fields, err)
		}
		if err != nil && strings.Contains(err.Error(), "there are args") {
			t.Errorf("the error offers fields of others: %v", err)
		}
	}
}
