package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/splitnic/splitnic/fabric"
)

// The programs of rdma-core exchange their addresses as text with a trailing
// NUL: LID, queue pair number, packet sequence number and GID in hexadecimal.
const addressLen = len("0000:000000:000000:00000000000000000000000000000000") + 1

// done is the client's answer when it has the server's address. The server reads it and ignores its
// content.
const done = "done\x00"

func formatAddress(a fabric.Address) []byte {
	return fmt.Appendf(nil, "%04x:%06x:%06x:%x\x00", a.LID, a.QPN, a.PSN, a.GID)
}

func parseAddress(msg []byte) (fabric.Address, error) {
	var a fabric.Address
	if len(msg) != addressLen || msg[addressLen-1] != 0 {
		return a, fmt.Errorf("peer's address %q is not %d bytes of text and a NUL", msg, addressLen-1)
	}
	var gid string
	if _, err := fmt.Sscanf(string(msg[:addressLen-1]), "%04x:%06x:%06x:%32s", &a.LID, &a.QPN, &a.PSN, &gid); err != nil {
		return a, fmt.Errorf("peer's address %q: %w", msg, err)
	}
	raw, err := hex.DecodeString(gid)
	if err != nil || len(raw) != len(a.GID) {
		return a, fmt.Errorf("peer's address %q: GID %q is not 32 hexadecimal digits", msg, gid)
	}
	copy(a.GID[:], raw)
	return a, nil
}

// dial exchanges addresses with a server and connects the queue pair.
func (s *session) dial(ctx context.Context, addr string) error {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	if _, err := c.Write(formatAddress(s.qp.Address())); err != nil {
		return err
	}
	remote, err := readAddress(c)
	if err != nil {
		return err
	}
	if err := s.connect(remote); err != nil {
		return err
	}
	_, err = c.Write([]byte(done))
	return err
}

// accept waits for a client, exchanges addresses with it and connects the
// queue pair, which has to be ready before the client knows its address.
func (s *session) accept(ctx context.Context, ln net.Listener) error {
	defer context.AfterFunc(ctx, func() { ln.Close() })()
	c, err := ln.Accept()
	if err != nil {
		return errors.Join(ctx.Err(), err)
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	remote, err := readAddress(c)
	if err != nil {
		return err
	}
	if err := s.connect(remote); err != nil {
		return err
	}
	if _, err := c.Write(formatAddress(s.qp.Address())); err != nil {
		return err
	}
	_, err = io.ReadFull(c, make([]byte, len(done)))
	return err
}

func readAddress(r io.Reader) (fabric.Address, error) {
	msg := make([]byte, addressLen)
	if _, err := io.ReadFull(r, msg); err != nil {
		return fabric.Address{}, fmt.Errorf("reading the peer's address: %w", err)
	}
	return parseAddress(msg)
}
