package messaging_test

import (
	"sync/atomic"

	"github.com/splitnic/splitnic/fabric"
)

// polled is a device whose completion queues are polled by a function of the test, which calls the Poll
// of the device's own.
type polled struct {
	fabric.Device
	poll func(q *polledCQ, out []fabric.Completion) (int, error)
}

type polledDomain struct {
	fabric.Domain
	d *polled
}

type polledCQ struct {
	fabric.CQ
	d            *polled
	sends, recvs bool // it has the completions of a send queue, of a receive queue

	// For the function of the test.
	busy  atomic.Bool
	polls int // without a lock: the race detector sees who polls
}

func (d *polled) NewDomain() (fabric.Domain, error) {
	dom, err := d.Device.NewDomain()
	return polledDomain{dom, d}, err
}

func (m polledDomain) NewCQ(depth, vector int) (fabric.CQ, error) {
	q, err := m.Domain.NewCQ(depth, vector)
	return &polledCQ{CQ: q, d: m.d}, err
}

func (m polledDomain) NewQP(cfg fabric.QPConfig) (fabric.QP, error) {
	send, recv := cfg.SendCQ.(*polledCQ), cfg.RecvCQ.(*polledCQ)
	send.sends, recv.recvs = true, true
	cfg.SendCQ, cfg.RecvCQ = send.CQ, recv.CQ
	return m.Domain.NewQP(cfg)
}

func (q *polledCQ) Poll(out []fabric.Completion) (int, error) { return q.d.poll(q, out) }
