package bench

import (
	"database/sql"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"junction/auth"
	"junction/auth/authtest"
	"junction/integration/harness"
)

// BenchmarkSizing is what an operator multiplies: the memory and descriptors of one process, and of three
// over Postgres behind nginx, with 3,000 API keys in 30 groups, each of which sees other tools of 200.
//
//   - rest: before the first call
//   - principal: when each key has listed its tools and called one, at each process
//   - stream: for each of 1,000 sessions with an open stream, spread over the processes
//   - statements: of one process without clients, in a second
func BenchmarkSizing(b *testing.B) {
	for _, processes := range []int{1, 3} {
		benchOnce(b, fmt.Sprint(processes), func(b *testing.B) map[string]float64 { return sizing(b, processes) })
	}
}

const (
	sizingKeys    = 3000
	sizingGroups  = 30
	sizingTools   = 200
	sizingStreams = 1000
)

func sizing(b *testing.B, processes int) map[string]float64 {
	var keys []string
	var hashes, policies strings.Builder
	for i := range sizingKeys {
		key := auth.NewKey()
		hash, err := auth.HashKey(key)
		if err != nil {
			b.Fatal(err)
		}
		keys = append(keys, key)
		fmt.Fprintf(&hashes, "    - { name: k%d, hash: %q }\n", i, hash)
	}
	for g := range sizingGroups {
		var names []string
		for i := g; i < sizingKeys; i += sizingGroups {
			names = append(names, fmt.Sprintf("k%d", i))
		}
		fmt.Fprintf(&policies, "  - { name: g%d, match: { key: [%s] }, rules: [{ allow: { tools: [up__echo, \"up__tool_0*%d\"] } }] }\n",
			g, strings.Join(names, ", "), g)
	}
	config := fmt.Sprintf("upstreams: { up: { url: \"http://%s/mcp\", isolation: shared } }\nauth:\n  api_keys:\n%spolicies:\n%slimits: { streams: 5000 }\n",
		startEcho(b, sizingTools).addr, &hashes, &policies)
	var p *harness.Program
	if processes == 1 {
		p = harness.MustProgram(b, config)
	} else {
		p = harness.MustProcesses(b, processes, config)
	}
	p.MustReady(b, harness.Patience)
	ep := benchEndpoint{addr: strings.TrimPrefix(p.Origin(), "http://")}
	for _, o := range append(p.Others, p) {
		ep.pids = append(ep.pids, o.Cmd.Process.Pid)
	}
	figures := map[string]float64{}
	if processes > 1 {
		figures["statements/s"], figures["connections"] = statements(b, processes)
	}
	all, rest := atRest(b, ep)
	figures["MB-rest"], figures["MB-rest-own"] = float64(all)/1e6/float64(processes), float64(rest)/1e6/float64(processes)
	files := descriptors(b, ep)
	figures["fds-rest"] = files / float64(processes)

	client := newRawClient(ep.addr, harness.ModernEra, "")
	b.Cleanup(client.Close)
	for _, client.token = range keys {
		for range processes {
			for _, request := range [][]byte{client.list(), client.call("up__echo", 10)} {
				if status, err := client.do(request); err != nil || status != 200 {
					b.Fatalf("status %d, %v: %.300s", status, err, client.body)
				}
			}
		}
	}
	_, known := atRest(b, ep)
	figures["KB/principal"] = kilobytes(known-rest) / sizingKeys / float64(processes)
	files = descriptors(b, ep)
	for i := range sizingStreams {
		c := newRawClient(ep.addr, harness.LegacyEra, keys[i])
		c.buf = make([]byte, 8<<10)
		b.Cleanup(c.Close)
		if err := c.start(); err != nil {
			b.Fatal(err)
		}
		if status, err := c.stream(); err != nil || status != 200 {
			b.Fatalf("open a stream: status %d, %v", status, err)
		}
	}
	_, streaming := atRest(b, ep)
	figures["KB/stream"] = kilobytes(streaming-known) / sizingStreams
	figures["fds/stream"] = (descriptors(b, ep) - files) / sizingStreams
	return figures
}

// descriptors returns how many descriptors the processes have.
func descriptors(b *testing.B, ep benchEndpoint) (n float64) {
	b.Helper()
	for _, pid := range ep.pids {
		list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		if err != nil {
			b.Skipf("descriptors: %v", err)
		}
		n += float64(len(list))
	}
	return n
}

// statements returns how many statements one of the processes makes in a second, and how many connections
// it has. Nothing else may use the server of the database.
func statements(b *testing.B, processes int) (each, connections float64) {
	b.Helper()
	db, err := sql.Open("pgx", authtest.Postgres(b))
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	count := func() (n int64) {
		if err := db.QueryRowContext(b.Context(), `SELECT sum(xact_commit + xact_rollback) FROM pg_stat_database`).Scan(&n); err != nil {
			b.Fatal(err)
		}
		return n
	}
	const wait = 30 * time.Second
	before := count()
	time.Sleep(wait)
	each = float64(count()-before) / wait.Seconds() / float64(processes)
	err = db.QueryRowContext(b.Context(), `SELECT count(*) FROM pg_stat_activity
		WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()`).Scan(&connections)
	if err != nil {
		b.Fatal(err)
	}
	return each, connections / float64(processes)
}
