package endpoints

import (
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// config returns the configuration of the channels of a session of the scripted I/O unit.
func (s *script) config(dev fabric.Device, mtu int, hello *session.Hello) messaging.Config {
	return messaging.Config{
		Device: dev, Mode: hello.Modes[0], Queues: 1, MTU: mtu,
		PeerPools: hello.PoolsIn(hello.Modes[0]), PeerTimeout: time.Minute, OnRequest: s.answer,
	}
}

// welcome returns the welcome of the scripted I/O unit.
func (s *script) welcome(conn *messaging.Conn, mcfg *messaging.Config) session.Welcome {
	return session.Welcome{
		Name: "script", Software: "test", Mode: mcfg.Mode, Queues: 1, Pools: mcfg.Lends(),
		Link: session.Link{Up: true}, ControlReceives: conn.ControlReceives(),
	}
}
