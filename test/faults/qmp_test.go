package faults

import (
	"encoding/json"
	"fmt"
	"net"
	"sync"
	"time"
)

// qmp controls a machine's qemu.
type qmp struct {
	mu  sync.Mutex
	c   net.Conn
	dec *json.Decoder
}

// newQMP negotiates with a qemu that has connected.
func newQMP(c net.Conn) (*qmp, error) {
	q := &qmp{c: c, dec: json.NewDecoder(c)}
	c.SetDeadline(time.Now().Add(patience))
	var greeting struct {
		QMP *struct{} `json:"QMP"`
	}
	if err := q.dec.Decode(&greeting); err != nil || greeting.QMP == nil {
		return nil, fmt.Errorf("qemu does not greet: %w", err)
	}
	return q, q.do("qmp_capabilities", nil)
}

// do executes a command in qemu and waits for its reply.
func (q *qmp) do(command string, arguments map[string]any) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.c.SetDeadline(time.Now().Add(patience))
	request := map[string]any{"execute": command}
	if arguments != nil {
		request["arguments"] = arguments
	}
	if err := json.NewEncoder(q.c).Encode(request); err != nil {
		return fmt.Errorf("qemu, %s: %w", command, err)
	}
	for {
		var answer struct {
			Return *json.RawMessage `json:"return"`
			Error  *struct {
				Desc string `json:"desc"`
			} `json:"error"`
		}
		if err := q.dec.Decode(&answer); err != nil {
			return fmt.Errorf("qemu, %s: %w", command, err)
		}
		switch {
		case answer.Error != nil:
			return fmt.Errorf("qemu, %s: %s", command, answer.Error.Desc)
		case answer.Return != nil:
			return nil
		} // otherwise the message is an event
	}
}
