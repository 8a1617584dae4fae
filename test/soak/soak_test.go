package soak

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Environment variables that control the tests.
const (
	seedVar   = "SPLITNIC_SEED"        // seed of all random choices; default: from the clock
	cyclesVar = "SPLITNIC_SOAK_CYCLES" // number of connections
	firstVar  = "SPLITNIC_SOAK_FIRST"  // number of the first cycle
	framesVar = "SPLITNIC_SOAK_FRAMES" // number of frames of each kind
)

// setting returns the number in environment variable name, or otherwise if that is not set.
func setting(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	text, ok := os.LookupEnv(name)
	if !ok {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 0, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

func newSeed(t *testing.T) uint64 {
	t.Helper()
	seed := setting(t, seedVar, uint64(time.Now().UnixNano()))
	t.Logf("%s=%d", seedVar, seed)
	return seed
}

// A test reports its progress after every interval, and takes a census after every censusCycles
// cycles. With long sessions the first census, with which later ones are compared, is taken after
// warmSessions sessions. Even the smallest run has more sessions: there are eight kinds, and a
// session has two at most.
const (
	interval     = 20 * time.Second
	censusCycles = 1000
	warmSessions = 3
)

// row has the counters of a line of the final table.
type row struct {
	tally
	cycles int // number of cycles with frames of this kind
}

// soak runs cycles and checks that they leave no resources behind.
type soak struct {
	t      *testing.T
	g      *ground
	seed   uint64
	scale  scale
	rows   map[kind]*row
	faults map[fault]int
	since  time.Time
	said   time.Time
	base   census
	warm   bool
	done   int    // cycles
	again  string // environment variable that is set to 1 to replay one cycle
}

func newSoak(t *testing.T, g *ground, seed uint64, sc scale) *soak {
	s := &soak{
		t: t, g: g, seed: seed, scale: sc, rows: make(map[kind]*row), faults: make(map[fault]int), since: time.Now(),
		said: time.Now(),
	}
	for _, k := range kinds() {
		s.rows[k] = new(row)
	}
	return s
}

// one runs cycle number.
func (s *soak) one(number uint64) {
	s.t.Helper()
	p := newPlan(s.seed, number, s.scale)
	sums, err := s.g.run(p)
	for i := range sums {
		r := s.rows[p.kind(side(i))]
		r.add(&sums[i])
		if i == 0 || p.kind(host) != p.kind(unit) {
			r.cycles++
		}
	}
	s.done++
	s.faults[p.fault]++
	if err != nil {
		s.t.Fatalf("%v\nagain: %s=%d %s=%d %s=1 go test%s ./test/soak -count=1 -v -run '^%s$'",
			err, seedVar, s.seed, firstVar, number, s.again, raceFlag, s.t.Name())
	}
}

// cycles runs n cycles, beginning with number first. The first tenth of them fills the caches of
// allocators and of the runtime; later censuses are compared with the census after it.
func (s *soak) cycles(first, n uint64) {
	s.t.Helper()
	warm := min(max(n/10, 1), censusCycles)
	for i := range n {
		s.one(first + i)
		if !s.warm && i+1 == warm {
			s.begin()
		}
		if i+1 == n || (i+1)%censusCycles == 0 {
			s.look(fmt.Sprintf("%d of %d cycles", i+1, n), i+1 == n)
		}
		if time.Since(s.said) > interval {
			s.say(fmt.Sprintf("%d of %d cycles", i+1, n))
		}
	}
}

// begin takes the census with which later ones are compared.
func (s *soak) begin() {
	s.t.Helper()
	var err error
	if s.base, err = s.g.take(); err != nil {
		s.t.Fatal(err)
	}
	s.warm = true
	s.t.Logf("at first: %v", s.base)
}

// look takes a census and compares it with the first one.
func (s *soak) look(progress string, last bool) {
	s.t.Helper()
	if !s.warm {
		return
	}
	c := s.g.expect(s.t, &s.base)
	if last {
		s.t.Logf("at last, after %s: %v", progress, c)
	}
}

func (s *soak) say(progress string) {
	var frames uint64
	for _, r := range s.rows {
		frames += r.frames
	}
	d := time.Since(s.since)
	s.t.Logf("%s after %v: %.1f cycles/s, %.0f frames/s", progress, d.Round(time.Second), float64(s.done)/d.Seconds(),
		float64(frames)/d.Seconds())
	s.said = time.Now()
}

// table logs the results of all cycles.
func (s *soak) table() {
	s.t.Helper()
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "mode\tprotection\tcycles\tframes\tMiB\twrong\tdoubled\tlost\tlost by UC\t")
	for _, k := range kinds() {
		r := s.rows[k]
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t\n",
			k.mode, cmp.Or(k.protection, "-"), r.cycles, r.frames, r.bytes>>20, r.wrong, r.doubled, r.lost, r.tolerated)
	}
	w.Flush()
	text.WriteString("faults:")
	for _, f := range slices.Sorted(maps.Keys(s.faults)) {
		fmt.Fprintf(&text, " %s %d", f, s.faults[f])
	}
	s.t.Logf("seed %d, %d cycles, %v\n%s", s.seed, s.done, time.Since(s.since).Round(time.Millisecond), text.String())
}

// soakCycles runs n cycles, or as many as the environment says.
func soakCycles(t *testing.T, g *ground, seed, n uint64, sc scale) {
	t.Helper()
	s := newSoak(t, g, seed, sc)
	s.again = cyclesVar
	defer s.table()
	s.cycles(setting(t, firstVar, 0), setting(t, cyclesVar, n))
}

// soakFrames moves at least n frames of each kind, or as many as the environment says, in sessions
// without a fault, with sc.exactly frames in each direction of each queue.
func soakFrames(t *testing.T, g *ground, seed, n uint64, sc scale) {
	t.Helper()
	n = setting(t, framesVar, n)
	s := newSoak(t, g, seed, sc)
	s.again = framesVar
	defer s.table()
	number := setting(t, firstVar, 0)
	missing := func(k kind) bool { return s.rows[k].frames < n }
	for ; slices.ContainsFunc(kinds(), missing); number++ {
		p := newPlan(seed, number, sc)
		if !missing(p.kind(host)) && !missing(p.kind(unit)) {
			continue // this session has no kind of which frames are missing
		}
		s.one(number)
		if !s.warm && s.done == warmSessions {
			s.begin()
		}
		if s.done%64 == 0 {
			s.look(fmt.Sprintf("session %d", s.done), false)
		}
		if time.Since(s.said) > interval {
			s.say(fmt.Sprintf("session %d", s.done))
		}
	}
	s.look("all", true)
	for k, r := range s.rows {
		if bad := r.bad(); bad > 0 {
			t.Errorf("mode %s, protection %s: %d frames are wrong, doubled or lost", k.mode, cmp.Or(k.protection, "-"), bad)
		}
	}
}

// TestSoakCycles runs thousands of sessions in memory, with all modes and protections and many
// configurations. Half of them end by a fault.
func TestSoakCycles(t *testing.T) {
	seed := newSeed(t)
	soakCycles(t, newMemory(t), seed, memoryCycles, scale{frames: 600, slots: 20, fabric: true})
}

// TestSoakFrames runs long sessions in memory, in which every frame is checked.
func TestSoakFrames(t *testing.T) {
	seed := newSeed(t)
	soakFrames(t, newMemory(t), seed, memoryFrames, scale{frames: 1, exactly: exactFrames, slots: 40, fabric: true})
}
