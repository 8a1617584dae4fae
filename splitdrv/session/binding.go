package session

import "fmt"

// bindingLabel is for what is exported from a TLS session (RFC 8446 §7.5): one
// for private use, as RFC 5705 §4 has it.
const bindingLabel = "EXPERIMENTAL-splitnic-bind"

// BindingSize is the size in bytes of what Binding returns.
const BindingSize = 32

// Binding is a secret that only the two ends of this connection know, and that
// no other connection has: who knows it took part in the authentication. It is
// for what is to be bound to the connection. The handshake of TLS must be over,
// as it is after Dial and Accept.
func (c *Conn) Binding() (secret [BindingSize]byte, err error) {
	state := c.tls.ConnectionState()
	material, err := state.ExportKeyingMaterial(bindingLabel, nil, BindingSize)
	if err != nil {
		return secret, fmt.Errorf("export from the TLS session with %v: %w", c, err)
	}
	return [BindingSize]byte(material), nil
}
