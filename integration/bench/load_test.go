package bench

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"junction/integration/harness"
)

// loadOrder asks the load generator for one run; it ends at whichever comes first.
type loadOrder struct {
	For   time.Duration
	Calls int64 // 0: as many as fit
}

// loadReport is what a run came to.
type loadReport struct {
	Calls    int
	Elapsed  time.Duration
	P50, P99 time.Duration
	Error    string // of the first call that failed, which ends the run
}

// load is a number of sessions, each of which sends its next request as soon as it has the response
// to the last.
type load struct {
	sessions []*rawClient
	requests [][]byte // one per session
	atLeast  int      // bytes of a good response's body
}

// loadGenerator opens its sessions, says so with an empty report, and then makes one run for each
// order on its standard input.
func loadGenerator(args []string) error {
	fs := flag.NewFlagSet("bench-load", flag.ContinueOnError)
	addr := fs.String("addr", "", "HOST:PORT of the MCP server")
	era := fs.String("era", harness.LegacyEra, "legacy or modern")
	sessions := fs.Int("sessions", 1, "how many sessions, each on a connection of its own")
	token := fs.String("token", "", "the bearer token for the server")
	tool := fs.String("tool", "echo", "the tool to call; empty: list the tools")
	owner := fs.String("owner", "", "HOST:PORT of another process of the server, which sessions begin at")
	size := fs.Int("size", 100, "how many bytes a call asks for; every answer has at least as many")
	if err := fs.Parse(args); err != nil {
		return err
	}
	l := &load{atLeast: *size}
	for range *sessions {
		c := newRawClient(*addr, *era, *token)
		defer c.Close()
		if *owner != "" {
			c.addr = *owner
		}
		if err := c.start(); err != nil {
			return err
		}
		if *owner != "" {
			c.Close()
			c.addr = *addr
		}
		req := c.list()
		if *tool != "" {
			req = c.call(*tool, *size)
		}
		l.sessions, l.requests = append(l.sessions, c), append(l.requests, req)
	}
	in, out := bufio.NewScanner(os.Stdin), json.NewEncoder(os.Stdout)
	if err := out.Encode(loadReport{}); err != nil {
		return err
	}
	for in.Scan() {
		var o loadOrder
		if err := json.Unmarshal(in.Bytes(), &o); err != nil {
			return fmt.Errorf("read the order: %w", err)
		}
		if err := out.Encode(l.run(o)); err != nil {
			return err
		}
	}
	return in.Err()
}

// run makes calls on all sessions at once and returns when all have ended.
func (l *load) run(o loadOrder) loadReport {
	var (
		made   atomic.Int64
		failed atomic.Pointer[error]
		wg     sync.WaitGroup
	)
	times := make([][]time.Duration, len(l.sessions))
	start := time.Now()
	end := start.Add(o.For)
	for i, c := range l.sessions {
		wg.Go(func() {
			req := l.requests[i]
			id := bytes.Index(req, []byte(firstID[:5]))
			ts := make([]time.Duration, 0, 1<<14)
			defer func() { times[i] = ts }()
			for t := start; t.Before(end) && failed.Load() == nil && (o.Calls == 0 || made.Add(1) <= o.Calls); {
				nextID(req, id)
				if err := l.call(c, req); err != nil {
					failed.CompareAndSwap(nil, &err)
					return
				}
				now := time.Now()
				ts = append(ts, now.Sub(t))
				t = now
			}
		})
	}
	wg.Wait()
	r := loadReport{Elapsed: time.Since(start)}
	if err := failed.Load(); err != nil {
		r.Error = (*err).Error()
	}
	all := slices.Concat(times...)
	slices.Sort(all)
	if r.Calls = len(all); r.Calls > 0 {
		r.P50, r.P99 = all[r.Calls/2], all[r.Calls*99/100]
	}
	return r
}

// call makes one call and looks whether the answer is one.
func (l *load) call(c *rawClient, req []byte) error {
	status, err := c.do(req)
	if err != nil {
		return err
	}
	if status != 200 || c.size < l.atLeast || !bytes.Contains(c.body, []byte(`"result"`)) {
		return fmt.Errorf("status %d, a body of %d bytes: %.300s", status, c.size, c.body)
	}
	return nil
}
