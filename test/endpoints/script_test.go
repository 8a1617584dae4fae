package endpoints

import (
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// config is what the scripted I/O unit makes a session's channels of.
func (s *script) config(dev fabric.Device, mtu int, hello *session.Hello) messaging.Config {
	return messaging.Config{
		Device: dev, Mode: hello.Modes[0], Queues: 1, MTU: mtu,
		PeerPools: hello.PoolsIn(hello.Modes[0]), PeerTimeout: time.Minute, OnRequest: s.answer,
	}
}

// welcome is what it grants.
func (s *script) welcome(conn *messaging.Conn, mcfg *messaging.Config) session.Welcome {
	return session.Welcome{
		Name: "script", Software: "test", Mode: mcfg.Mode, Queues: 1, Pools: mcfg.Lends(),
		Link: session.Link{Up: true}, ControlReceives: conn.ControlReceives(),
	}
}
