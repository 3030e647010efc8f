// Package memberstest has members for tests: proxies in one process that serve the same endpoints,
// without a database, and an address for them that sends each request to the next one.
package memberstest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"junction/policy"
	"junction/proxy/budget"
	"junction/proxy/members"
)

// Cluster holds what several proxies in the test's process have in common, as members of one
// endpoint. It replaces the database of the program. Requests pass between members over HTTP.
type Cluster struct {
	mu      sync.Mutex
	joined  int
	living  map[string]*Member // by ID
	claims  map[[16]byte]string
	deleted map[[16]byte]bool
	spent   map[string]bool
	meters  budget.Meters
}

// NewCluster returns a cluster without members.
func NewCluster() *Cluster {
	return &Cluster{living: map[string]*Member{}, claims: map[[16]byte]string{}, deleted: map[[16]byte]bool{},
		spent: map[string]bool{}}
}

// Member is one process of a cluster. It implements members.Members.
type Member struct {
	cluster   *Cluster
	url       string
	transport *http.Transport
	Forwarded atomic.Int64 // requests that the member has sent to others
	id        string       // guarded by Cluster.mu
}

// hopHeader marks the requests between members. Its value is the address of the client.
const hopHeader = "X-Test-Hop"

// Member returns a new member, which has not joined yet.
func (c *Cluster) Member(t testing.TB) *Member {
	m := &Member{cluster: c, transport: &http.Transport{}}
	t.Cleanup(m.transport.CloseIdleConnections)
	return m
}

// Join makes the member a new one of the cluster, at the base URL of its server.
func (m *Member) Join(url string) {
	m.cluster.mu.Lock()
	defer m.cluster.mu.Unlock()
	delete(m.cluster.living, m.id)
	m.cluster.joined++
	m.id, m.url = fmt.Sprint("member", m.cluster.joined), url
	m.cluster.living[m.id] = m
}

// Leave takes the member's lease.
func (m *Member) Leave() {
	m.cluster.mu.Lock()
	defer m.cluster.mu.Unlock()
	delete(m.cluster.living, m.id)
	m.id = ""
}

// Handler marks the requests from other members.
func (m *Member) Handler(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if from := r.Header.Get(hopHeader); from != "" {
			r.Header.Del(hopHeader)
			r = r.WithContext(members.WithForwarded(r.Context()))
			r.RemoteAddr = from
		}
		h.ServeHTTP(w, r)
	})
}

// Self implements members.Members.
func (m *Member) Self() string {
	m.cluster.mu.Lock()
	defer m.cluster.mu.Unlock()
	return m.id
}

// Last implements members.Members.
func (m *Member) Last() string { return m.Self() }

// Deliver implements members.Members.
func (m *Member) Deliver(http.ResponseWriter, *http.Request, []byte) error { return members.ErrAlone }

// Ended implements members.Members.
func (m *Member) Ended(_ context.Context, id string) (bool, error) {
	m.cluster.mu.Lock()
	defer m.cluster.mu.Unlock()
	if m.id == "" {
		return false, members.ErrAlone
	}
	return m.cluster.living[id] == nil, nil
}

// Foreign implements members.Members.
func (m *Member) Foreign(string, time.Time) bool { return false }

// Await implements members.Members.
func (m *Member) Await(ctx context.Context, id string) error {
	for {
		if ended, err := m.Ended(ctx, id); ended || err != nil {
			return err
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Owner implements members.Members.
func (m *Member) Owner(_ context.Context, session [16]byte, first, released string, _ time.Time) (string, error) {
	c := m.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case m.id == "":
		return "", members.ErrAlone
	case c.living[c.claims[session]] != nil && c.claims[session] != released:
		return c.claims[session], nil
	case c.living[first] != nil && first != released:
		return first, nil
	case c.deleted[session]:
		return "", members.ErrDeleted
	}
	c.claims[session] = m.id
	return m.id, nil
}

// Forward implements members.Members.
func (m *Member) Forward(w http.ResponseWriter, r *http.Request, body []byte, to string) error {
	m.cluster.mu.Lock()
	target := m.cluster.living[to]
	m.cluster.mu.Unlock()
	if target == nil {
		return members.ErrGone
	}
	m.Forwarded.Add(1)
	out := r.Clone(r.Context())
	if body != nil { // cloned, because the transport may read it after the answer has begun
		out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(bytes.Clone(body))), int64(len(body))
	}
	out.Header.Set(hopHeader, r.RemoteAddr)
	err := pass(m.transport, w, out, target.url)
	if dial, ok := errors.AsType[*net.OpError](err); ok && dial.Op == "dial" {
		return members.ErrGone
	}
	return err
}

// State implements members.Members.
func (m *Member) State(_ context.Context, key [16]byte, released string) (owner string, lost bool, err error) {
	c := m.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.claims[key]
	switch {
	case m.id == "":
		return "", false, members.ErrAlone
	case c.living[before] != nil && before != released:
		return before, false, nil
	}
	c.claims[key] = m.id
	return m.id, before != "", nil
}

// FreeState implements members.Members.
func (m *Member) FreeState(_ context.Context, key [16]byte) error {
	m.cluster.mu.Lock()
	defer m.cluster.mu.Unlock()
	if m.cluster.claims[key] == m.id {
		delete(m.cluster.claims, key)
	}
	return nil
}

// Send implements members.Members.
func (m *Member) Send(ctx context.Context, r *http.Request, message string, body []byte, to string) (
	io.ReadCloser, error) {
	m.cluster.mu.Lock()
	target := m.cluster.living[to]
	m.cluster.mu.Unlock()
	if target == nil {
		return nil, members.ErrGone
	}
	m.Forwarded.Add(1)
	out := r.Clone(ctx)
	out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	out.Header.Set(hopHeader, r.RemoteAddr)
	out.Header.Set(members.HeaderCall, message)
	out.URL.Scheme, out.URL.Host, out.RequestURI = "http", strings.TrimPrefix(target.url, "http://"), ""
	answer, err := m.transport.RoundTrip(out)
	if dial, ok := errors.AsType[*net.OpError](err); ok && dial.Op == "dial" {
		return nil, members.ErrGone
	} else if err != nil {
		return nil, err
	}
	switch {
	case answer.Header.Get(members.HeaderReleased) != "":
		err = members.ErrReleased
	case answer.StatusCode >= http.StatusMultipleChoices:
		err = members.ErrRefused
	}
	if err != nil {
		answer.Body.Close()
		return nil, err
	}
	return answer.Body, nil
}

// pass sends the request to a server and copies the answer as it arrives. An error means that
// nothing was written; if the answer breaks off, pass panics.
func pass(over http.RoundTripper, w http.ResponseWriter, out *http.Request, url string) error {
	http.NewResponseController(w).EnableFullDuplex() // else net/http closes the body when the answer begins
	out.URL.Scheme, out.URL.Host, out.RequestURI = "http", strings.TrimPrefix(url, "http://"), ""
	answer, err := over.RoundTrip(out)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.Header.Get(members.HeaderReleased) != "" {
		return members.ErrReleased
	}
	maps.Copy(w.Header(), answer.Header)
	w.WriteHeader(answer.StatusCode)
	if transfer(w, answer.Body) != nil {
		panic(http.ErrAbortHandler)
	}
	return nil
}

// transfer copies an answer as it arrives. The error is about reading it.
func transfer(w http.ResponseWriter, from io.Reader) error {
	flush := http.NewResponseController(w).Flush
	flush()
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		if n > 0 {
			if _, err := w.Write(b[:n]); err != nil {
				return nil // the client is gone
			}
			flush()
		}
		if err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// DeleteSession implements members.Members.
func (m *Member) DeleteSession(_ context.Context, session [16]byte, _ time.Time) error {
	m.cluster.mu.Lock()
	defer m.cluster.mu.Unlock()
	if m.id == "" {
		return members.ErrAlone
	}
	m.cluster.deleted[session] = true
	return nil
}

// Once implements members.Members.
func (m *Member) Once(_ context.Context, id string, _ time.Time) (bool, error) {
	m.cluster.mu.Lock()
	defer m.cluster.mu.Unlock()
	if m.id == "" {
		return false, members.ErrAlone
	}
	first := !m.cluster.spent[id]
	m.cluster.spent[id] = true
	return first, nil
}

// Enter implements members.Members.
func (m *Member) Enter(ctx context.Context, principal string, l policy.Limits, other bool) (
	func(), time.Duration, error) {
	if m.Self() == "" {
		return nil, 0, members.ErrAlone
	}
	return m.cluster.meters.Enter(ctx, principal, l, other)
}
