package record

import (
	"errors"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"junction/auth/authtest"
	"junction/cmd/junction/base/config"
	"junction/proxy"
)

// sunk is a second receiver of the audit.
type sunk struct {
	mu   sync.Mutex
	text []byte
}

func (s *sunk) Add(lines []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text = append(s.text, lines...)
}

func (s *sunk) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(s.text)
}

// TestSecondReceiver: with audit.otlp, the second receiver gets the lines of the file once, also those
// that the file does not take yet. Without audit.otlp it gets nothing.
func TestSecondReceiver(t *testing.T) {
	for name, c := range map[string]config.Audit{"otlp": {OTLP: true}, "only the file": {}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c.File = config.AuditStderr
				d, s := &disk{}, &sunk{}
				trail := &Trail{Second: s, Log: authtest.Log(t)}
				a, err := trail.Next(c, d, authtest.Log(t))
				if err != nil {
					t.Fatal(err)
				}
				trail.Use(a)
				defer trail.Use(nil)
				trail.Call(&proxy.CallInfo{Name: "a", Outcome: "ok"})
				time.Sleep(time.Second)
				d.set(syscall.ENOSPC, 0)
				trail.Call(&proxy.CallInfo{Name: "b", Outcome: "ok"})
				time.Sleep(time.Second)
				if n := strings.Count(s.String(), "\n"); c.OTLP && n != 2 || !c.OTLP && n != 0 {
					t.Errorf("the second receiver has %d lines", n)
				}
				d.set(nil, 0)
				time.Sleep(time.Minute)
				trail.Call(&proxy.CallInfo{Name: "c", Outcome: "ok"})
				time.Sleep(time.Second)
				written := strings.Join(d.take(), "")
				if n := len(auditNames(written)); n != 3 {
					t.Errorf("the file has %d lines, want 3", n)
				}
				if c.OTLP && s.String() != written {
					t.Errorf("the second receiver has\n%s\nwant\n%s", s, written)
				}
			})
		})
	}
	if _, err := new(Trail).Next(config.Audit{File: config.AuditStderr, OTLP: true}, &disk{}, authtest.Log(t)); !errors.Is(err, errNoReceiver) {
		t.Errorf("audit.otlp without a receiver: %v", err)
	}
}
