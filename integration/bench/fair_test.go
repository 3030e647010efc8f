package bench

// BenchmarkFairness is the story of two principals: one sends all that it may, the other one calls
// a tool, one call after the other. Reported is how many of the calls take no more than twice the
// median of an idle proxy, and the most memory that one of its processes ever had. The idle proxy is the same
// one before the attack, and another one that is called in turns during the attack: what it needs
// more than before is what the attack takes from the machine, and not from the proxy. That no call
// of the other principal fails is required.
//
//	go test ./integration/bench -run '^$' -bench Fairness -benchtime 1x -timeout 0
//	BENCH_ATTACKS='slow,all' BENCH_SECONDS=5 go test …
//
// The attacker is a process of lower priority than the others: it stands for another machine.
// Everything else shares the CPUs.

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"junction/auth"
	"junction/auth/authtest"
	"junction/integration/harness/process"
)

func BenchmarkFairness(b *testing.B) {
	seconds, err := strconv.ParseFloat(cmp.Or(os.Getenv("BENCH_SECONDS"), "10"), 64)
	if err != nil || seconds <= 0 {
		b.Fatalf("BENCH_SECONDS is a number above 0: %v", err)
	}
	program := builder(b)
	fmt.Printf("\n%-10s %-8s %-6s %22s %22s %22s %10s %10s %8s %8s   %s\n", "attack", "client", "call",
		"before p50/p90 µs", "other proxy p50/p90 µs", "attacked p50/p90 µs",
		"2x before", "2x other", "peak MB", "calls", "how the attacker was answered")
	for _, row := range fairRows() {
		if !benchChosen("BENCH_ATTACKS", row.kind) {
			continue
		}
		for _, era := range benchEras {
			fairness(b, program(b), era, row, time.Duration(seconds*float64(time.Second)))
		}
	}
	b.ReportMetric(0, "ns/op") // it means nothing here
}

// fairRow is an attack, and what the proxies of its measurement need for it.
type fairRow struct {
	kind     string // of attackKinds, or all
	sections string // further sections of the file
	replicas bool   // a second process has all sessions, so that the measured one forwards their requests
}

// checkedPolicies has the arguments of all calls checked.
const checkedPolicies = "policies: [{ name: all, validate: true, rules: [{ allow: { upstreams: '*' } }] }]\n"

func fairRows() []fairRow {
	return []fairRow{{kind: "none"}, {kind: "streams"}, {kind: "slow"}, {kind: "abandon"}, {kind: "quick"},
		{kind: "sessions"}, {kind: "bodies"}, {kind: "unread"}, {kind: "forwarded", replicas: true},
		{kind: "checks", sections: checkedPolicies}, {kind: "all", sections: checkedPolicies}}
}

// mustKey makes a key and its entry of the file.
func mustKey(b *testing.B, name string) (key, entry string) {
	b.Helper()
	key = auth.NewKey()
	authtest.Secret("an API key", key)
	hash, err := auth.HashKey(key)
	if err != nil {
		b.Fatal(err)
	}
	return key, fmt.Sprintf(`{ name: %s, hash: "%s" }`, name, hash)
}

// fairProxy is a proxy with two principals and a server of its own.
type fairProxy struct {
	benchEndpoint
	echo benchEndpoint
	bad  string // the key of the other principal
	c    *rawClient
}

func startFairProxy(b *testing.B, program, era string, row fairRow) *fairProxy {
	b.Helper()
	p := &fairProxy{echo: startEcho(b, 20)}
	bad, badEntry := mustKey(b, "bad")
	good, goodEntry := mustKey(b, "good")
	sections := "log: { level: warn }\nauth: { api_keys: [" + badEntry + ", " + goodEntry + "] }\n" + row.sections
	if row.replicas {
		p.benchEndpoint = startReplicasWith(b, program, era, sections, good, overHTTP(p.echo, era))
	} else {
		p.benchEndpoint = launchJunctionWith(b, program, sections, overHTTP(p.echo, era))
	}
	p.token, p.bad = good, bad
	waitTools(b, p.benchEndpoint, era, 20)
	p.c = newRawClient(cmp.Or(p.owner, p.addr), era, good)
	if err := p.c.start(); err != nil {
		p.proc.fatal(b, "open a session: %v", err)
	}
	p.c.Close()
	p.c.addr = p.addr
	return p
}

func (p *fairProxy) stop() {
	p.c.Close()
	p.proc.stop()
	for _, other := range p.others {
		other.stop()
	}
	p.echo.proc.stop()
}

// fairness measures one kind of attack.
func fairness(b *testing.B, program, era string, row fairRow, each time.Duration) {
	b.Helper()
	attacked, other := startFairProxy(b, program, era, row), startFairProxy(b, program, era, row)
	defer attacked.stop()
	defer other.stop()
	both := []*fairProxy{attacked, other}
	delays := []int{0, 5, 50} // milliseconds that the tool takes
	var before []times
	for _, ms := range delays {
		inTurns(b, both, ms, each/10)
		before = append(before, inTurns(b, both, ms, each)[0])
	}
	kinds := row.kind
	if kinds == "all" {
		var list []string
		for name := range attackKinds() {
			list = append(list, name)
		}
		kinds = strings.Join(list, ",")
	}
	attacker, in, out := startRole(b, "bench-attack", "-addr", attacked.addr, "-owner", attacked.owner, "-token", attacked.bad,
		"-kinds", kinds)
	defer attacker.stop()
	select { // until it is under way
	case <-time.After(each):
	case <-attacker.done:
		attacker.fatal(b, "it has ended")
	}
	during := make([][]times, len(delays))
	for i, ms := range delays {
		during[i] = inTurns(b, both, ms, each)
	}
	var peak int64 // of the process that has most
	for _, pid := range attacked.pids {
		most, _ := process.PeakMemory(pid)
		peak = max(peak, most)
	}
	in.(io.Closer).Close()
	statuses := map[string]int{}
	if err := json.NewDecoder(out).Decode(&statuses); err != nil {
		attacker.fatal(b, "no summary: %v", err)
	}
	answered := summary(statuses)
	for i, ms := range delays {
		its, others := during[i][0], during[i][1]
		fmt.Printf("%-10s %-8s %3d ms %22s %22s %22s %9.1f%% %9.1f%% %8.0f %8d   %s\n", row.kind, era, ms, before[i], others, its,
			its.within(2*before[i].quantile(0.5))*100,
			its.within(2*others.quantile(0.5))*100, float64(peak)/1e6, len(its), answered)
		answered = ""
	}
}

// times are how long calls took, the shortest first.
type times []time.Duration

func (ts times) quantile(q float64) time.Duration { return ts[int(q*float64(len(ts)-1))] }

func (ts times) String() string {
	return fmt.Sprintf("%.0f/%.0f", microseconds(ts.quantile(0.5)), microseconds(ts.quantile(0.9)))
}

// within returns which part of the calls took at most so long.
func (ts times) within(limit time.Duration) float64 {
	n, _ := slices.BinarySearch(ts, limit+1)
	return float64(n) / float64(len(ts))
}

// inTurns makes one call after the other for a while, each time to the next proxy, and returns how
// long those to each took. Each has to succeed.
func inTurns(b *testing.B, proxies []*fairProxy, ms int, each time.Duration) []times {
	b.Helper()
	all := make([]times, len(proxies))
	requests := make([][]byte, len(proxies))
	for i, p := range proxies {
		requests[i] = p.c.callFor(100, ms)
	}
	for end := time.Now().Add(each); time.Now().Before(end); {
		for i, p := range proxies {
			nextID(requests[i], bytes.Index(requests[i], []byte(firstID[:5])))
			began := time.Now()
			status, err := p.c.do(requests[i])
			all[i] = append(all[i], time.Since(began))
			if err != nil || status != 200 || !bytes.Contains(p.c.body, []byte(`"result"`)) {
				p.proc.fatal(b, "a call of the other principal is answered %d %.300s, %v", status, p.c.body, err)
			}
		}
	}
	for _, ts := range all {
		slices.Sort(ts)
	}
	return all
}
