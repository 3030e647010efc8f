package admin

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/runfile"
	"junction/cmd/junction/ops/diagnose"
)

// TestAwaitReload waits for a proxy that reads the file at once, later, with a mistake, or never.
func TestAwaitReload(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte("abc"), 0o600); err != nil {
		t.Fatal(err)
	}
	const sum = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" // of abc (FIPS 180-2)
	if _, err := AwaitReload(t.Context(), file); !errors.Is(err, ErrNotRunning) {
		t.Errorf("without a proxy: %v", err)
	}
	var asked atomic.Int64
	var readAfter int64
	problem, changes := "", false
	ctx, cancel := context.WithCancel(t.Context())
	admin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := asked.Add(1)
		if changes && n == 1 {
			if err := os.WriteFile(file, []byte("abc"), 0o600); err != nil {
				t.Error(err)
			}
		}
		if n == 10 || readAfter < 0 && n == 3 { // the person has waited long enough
			cancel()
		}
		answer := diagnose.Running{Report: diagnose.Report{Reload: "an old problem"}}
		if readAfter >= 0 && n > readAfter {
			answer.Read, answer.Reload = sum, problem
		}
		_ = json.NewEncoder(w).Encode(answer)
	}))
	defer admin.Close()
	record, err := runfile.Note(os.LookupEnv, file, runfile.Place{URL: "http://127.0.0.1:1/mcp", Admin: strings.TrimPrefix(admin.URL, "http://")}, "")
	if err != nil {
		t.Fatal(err)
	}
	defer record.Forget()
	for _, test := range []struct {
		after   int64
		problem string
	}{{0, ""}, {2, ""}, {1, "listen has changed"}} {
		asked.Store(0)
		readAfter, problem = test.after, test.problem
		if got, err := AwaitReload(ctx, file); err != nil || got.Reload != test.problem || asked.Load() != test.after+1 {
			t.Errorf("read after %d answers: %v, %v, and %d answers", test.after, got, err, asked.Load())
		}
	}
	// Another command changes the file before the proxy has read it, so that the proxy never reads the first content.
	if err := os.WriteFile(file, []byte("abd"), 0o600); err != nil {
		t.Fatal(err)
	}
	asked.Store(0)
	readAfter, changes = 1, true
	if _, err := AwaitReload(ctx, file); err != nil || asked.Load() != 2 {
		t.Errorf("a file that another command changes: %v, and %d answers", err, asked.Load())
	}
	asked.Store(0)
	readAfter, changes = -1, false
	if got, err := AwaitReload(ctx, file); !errors.Is(err, context.Canceled) {
		t.Errorf("a proxy that never reads the file: %v, %v", got, err)
	}
}

// TestAnotherFileIsServed: the junction at an address of a file serves it, also by another path, or serves
// another file, whose answers would be wrong.
func TestAnotherFileIsServed(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	dir := t.TempDir()
	file, link, other := filepath.Join(dir, "config.yaml"), filepath.Join(dir, "link.yaml"), filepath.Join(dir, "other.yaml")
	for _, name := range []string{file, other} {
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Link(file, link); err != nil {
		t.Fatal(err)
	}
	record, err := runfile.Note(os.LookupEnv, file, runfile.Place{URL: "http://127.0.0.1:8420/mcp", Admin: "127.0.0.1:8421"}, "")
	if err != nil {
		t.Fatal(err)
	}
	defer record.Forget()
	for _, address := range []string{"127.0.0.1:8420", "127.0.0.1:8421"} {
		for _, name := range []string{file, link, ""} {
			if err := ServesOther(name, address); err != nil {
				t.Errorf("%q: %v", name, err)
			}
		}
		if err := ServesOther(other, address); !errors.Is(err, ErrNotRunning) || !strings.Contains(err.Error(), "serves "+file) {
			t.Errorf("another file: %v", err)
		}
	}
	if err := ServesOther(other, "127.0.0.1:1"); err != nil {
		t.Errorf("an address without a junction: %v", err)
	}
}

// TestJunctionOfAnotherUser: without a file of their own, a user gets the answers of a junction that runs as
// this user, and of no other one. With a file, the file decides, as for a service that runs as another user.
func TestJunctionOfAnotherUser(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	own := filepath.Join(t.TempDir(), "config.yaml")
	for _, test := range []struct {
		file   string
		answer diagnose.Running
		want   string // in the error; "" if there is none
	}{
		{"", diagnose.Running{User: runfile.User(), File: own}, ""},
		{"", diagnose.Running{User: runfile.User()}, ""},
		{"", diagnose.Running{User: "ann", PID: 7, File: "/home/ann/j.yaml"},
			`(process 7 of the user "ann") serves /home/ann/j.yaml: to use that one, give it`},
		{"", diagnose.Running{}, `of the user "?") serves the demo`},
		{own, diagnose.Running{User: "junction", File: own}, ""},
		{own, diagnose.Running{User: runfile.User(), File: own + "2"}, "serves " + own + "2: to use that one, give it, or make"},
		{own, diagnose.Running{User: runfile.User(), Config: "config.yaml"}, "serves the demo"},
	} {
		admin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_ = json.NewEncoder(w).Encode(test.answer)
		}))
		address := strings.TrimPrefix(admin.URL, "http://")
		err := CheckOwn(t.Context(), test.file, &config.Config{Admin: &address}, "give it")
		admin.Close()
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q, %+v: %v, want %q", test.file, test.answer, err, test.want)
		}
		if err := CheckOwn(t.Context(), test.file, &config.Config{Admin: &address}, "give it"); err != nil {
			t.Errorf("nothing answers: %v", err)
		}
	}
}

// TestRevocationFindsTheJunctionOfAnotherUser: a service runs as another user, and has a state folder of its
// own. A key that it still accepts is not said to be revoked, as if no junction served the file.
func TestRevocationFindsTheJunctionOfAnotherUser(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	file := filepath.Join(t.TempDir(), "config.yaml")
	var answer diagnose.Running
	admin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/keys" {
			_ = json.NewEncoder(w).Encode([]diagnose.Key{{Hash: "5e"}})
			return
		}
		_ = json.NewEncoder(w).Encode(answer)
	}))
	defer admin.Close()
	text := "upstreams: { a: { command: [a] } }\nadmin: " + strings.TrimPrefix(admin.URL, "http://") + "\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(text))
	answer = diagnose.Running{User: "junction", PID: 7, File: file, Read: hex.EncodeToString(sum[:])}
	running, _, err := AwaitRevoked(t.Context(), file, []string{"5e"})
	if !running || err == nil || !strings.Contains(err.Error(), "still accepts the key") || !strings.Contains(err.Error(), "process 7") {
		t.Errorf("running %v, %v", running, err)
	}
	answer.File += "2" // it serves another file
	if running, _, err := AwaitRevoked(t.Context(), file, []string{"5e"}); running || err != nil {
		t.Errorf("of another file: running %v, %v", running, err)
	}
}
