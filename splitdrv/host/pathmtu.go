package host

import (
	"sync"
	"time"
)

// pathMTUMemory is for how long sessions with an I/O unit use a path MTU below the port's, after
// larger packets did not get through.
const pathMTUMemory = time.Hour

// smallestPathMTU is the smallest path MTU of InfiniBand and RoCE, in bytes.
const smallestPathMTU = 256

// pathMTUs remembers the I/O units to which packets of the port's MTU do not get through: a switch
// on the way drops them. Each attempt in which they do not, and smaller packets do, halves the path
// MTU of the next one; below the smallest one it begins again. Any goroutine may use it.
type pathMTUs struct {
	mu sync.Mutex
	of map[string]pathMTU // by address of the I/O unit
}

type pathMTU struct {
	bytes int
	since time.Time
}

// limit returns the largest path MTU to use with an I/O unit; 0: the port's.
func (p *pathMTUs) limit(addr string, now time.Time) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	m, ok := p.of[addr]
	if ok && now.Sub(m.since) >= pathMTUMemory {
		delete(p.of, addr)
		return 0
	}
	return m.bytes
}

// lost records that packets of the given path MTU do not get through, and
// returns the path MTU of the next attempt; 0: the port's.
func (p *pathMTUs) lost(addr string, mtu int, now time.Time) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	next := mtu / 2
	if next < smallestPathMTU {
		delete(p.of, addr)
		return 0
	}
	if p.of == nil {
		p.of = make(map[string]pathMTU)
	}
	p.of[addr] = pathMTU{next, now}
	return next
}
