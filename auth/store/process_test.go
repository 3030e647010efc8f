package store

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"junction/auth/authtest"
	"junction/auth/seal"
)

// child is the environment variable with the task of a child process, as JSON.
const child = "JUNCTION_STORE_TEST_CHILD"

// order is the task of a child process.
type order struct {
	Driver, DSN, Keys string
	Invented          bool // the process migrates by inventedStep, and hangs in the middle
}

func TestMain(m *testing.M) {
	if text := os.Getenv(child); text != "" {
		if err := serve(text); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// serve opens the store, prints "open", and exchanges a refresh token for each input line with the
// token and its successor, until its input ends.
func serve(text string) error {
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	keys, err := seal.ParseRing(o.Keys)
	if err != nil {
		return err
	}
	ctx := context.Background()
	c := Config{Driver: o.Driver, DSN: o.DSN, Keys: keys, Log: authtest.Log(nil, os.Stderr)}
	if o.Invented {
		c.steps, c.Now = inventedSteps(), hang
	}
	s, err := Open(ctx, c)
	if err != nil {
		return err
	}
	fmt.Println("open")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		old, next, _ := strings.Cut(lines.Text(), " ")
		answer, err := exchange(ctx, s, "client", old, next)
		if err != nil {
			return err
		}
		fmt.Println(strings.TrimPrefix(answer, "answer with "))
	}
	return s.Close()
}

// process is a running child process.
type process struct {
	*exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func mustStart(t *testing.T, d database) *process {
	t.Helper()
	return mustObey(t, order{Driver: d.driver, DSN: d.dsn, Keys: ringText("a")})
}

func mustObey(t *testing.T, o order) *process {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{Cmd: exec.Command(os.Args[0])}
	p.Env = append(os.Environ(), child+"="+string(text))
	p.Stderr = authtest.Searched(t, "the log of a process", os.Stderr)
	if p.in, err = p.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.out = bufio.NewReader(out)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.in.Close()
		_ = p.Wait()
	})
	return p
}

// line returns the next line of the process; it fails if the process has ended.
func (p *process) line() (string, error) {
	line, err := p.out.ReadString('\n')
	return strings.TrimSuffix(line, "\n"), err
}

func (p *process) mustSay(t *testing.T, want string) {
	t.Helper()
	if got, err := p.line(); err != nil || got != want {
		t.Fatalf("the process says %q, %v; want %q", got, err, want)
	}
}

// TestKilledExchangesCanBeRetried kills the process at random moments of 60 exchanges. Each time, the client can
// retry with its token.
func TestKilledExchangesCanBeRetried(t *testing.T) {
	run(t, func(t *testing.T, d database) {
		s := mustOpenNow(t, d)
		mustIssue(t, s, mustGrant(t, s, "ann"), "rt0")
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		p := mustStart(t, d)
		p.mustSay(t, "open")
		have, kills, replays, exchanges := "rt0", 0, 0, 60
		for i := 1; i <= exchanges; i++ {
			var killer *time.Timer
			if rand.IntN(2) == 0 {
				victim := p.Process
				killer = time.AfterFunc(time.Duration(rand.IntN(900))*time.Microsecond, func() { _ = victim.Kill() })
			}
			next := fmt.Sprintf("rt%d", i)
			_, _ = fmt.Fprintln(p.in, have, next)
			answer, err := p.line()
			for try := 1; err != nil; try++ {
				if answer != "" || try > 3 {
					t.Fatalf("exchange %d, try %d: %q, %v", i, try, answer, err)
				}
				kills++
				_ = p.Wait()
				p = mustStart(t, d)
				p.mustSay(t, "open")
				_, _ = fmt.Fprintf(p.in, "%s %s-%d\n", have, next, try)
				if answer, err = p.line(); err == nil && answer == next {
					replays++
				}
			}
			if killer != nil && !killer.Stop() {
				// The process died after the answer.
				_ = p.Process.Kill()
				_ = p.Wait()
				p = mustStart(t, d)
				p.mustSay(t, "open")
			}
			if !strings.HasPrefix(answer, next) {
				t.Fatalf("exchange %d of %s: %q", i, have, answer)
			}
			have = answer
		}
		t.Logf("%d exchanges were cut off; %d of them had happened, and were answered again", kills, replays)
		if err := p.in.Close(); err != nil {
			t.Fatal(err)
		}
		if line, err := p.line(); err != io.EOF {
			t.Fatalf("the process says %q, %v at its end", line, err)
		}
		s = mustOpenNow(t, d)
		if token, err := s.Token(t.Context(), RefreshToken, "sig-"+have); err != nil || token.State != Active {
			t.Errorf("the last token: %+v, %v; want it active", token, err)
		}
		if e, err := s.Events(t.Context(), 1); err != nil || len(e) > 0 {
			t.Errorf("Events = %+v, %v; want none: a crash is no reuse", e, err)
		}
	})
}

func mustOpenNow(t *testing.T, d database) *Store {
	t.Helper()
	s, err := Open(t.Context(), Config{Driver: d.driver, DSN: d.dsn, Keys: d.keys, Log: authtest.Log(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestStoreIsForOneProcess(t *testing.T) {
	file := filepath.Join(t.TempDir(), "junction.db")
	d := database{SQLite, file, mustRing(t, "a")}
	p := mustStart(t, d)
	p.mustSay(t, "open")
	link := filepath.Join(t.TempDir(), "link.db")
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{file, link} {
		s, err := Open(t.Context(), Config{DSN: name, Keys: d.keys, Log: authtest.Log(t)})
		if err == nil {
			_ = s.Close()
		}
		if !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), file) ||
			!strings.Contains(err.Error(), "with the line storage: { dsn: \"/") ||
			!strings.Contains(err.Error(), fmt.Sprintf("process %d ", p.Process.Pid)) {
			t.Errorf("Open(%s) = %v, want %v with the file and the process", name, err, ErrInUse)
		}
	}
	other := mustStart(t, d)
	if line, err := other.line(); err != nil || !strings.Contains(line, ErrInUse.Error()) {
		t.Errorf("a second process says %q, %v; want %v", line, err, ErrInUse)
	}
	if err := other.Wait(); err == nil {
		t.Error("a second process ended with success")
	}

	// A command may read, and change a few rows.
	s, err := Open(t.Context(), Config{DSN: file, Keys: d.keys, Attach: true, Log: authtest.Log(t)})
	want(t, "Attach", err, nil)
	mustIssue(t, s, mustGrant(t, s, "ann"), "rt0")
	want(t, "Close", s.Close(), nil)
	_, _ = fmt.Fprintln(p.in, "rt0 rt1")
	p.mustSay(t, "rt1")

	// The lease ends with the process, however the process ends.
	want(t, "Kill", p.Process.Kill(), nil)
	_ = p.Wait()
	s = mustOpenNow(t, d)
	if _, err := Open(t.Context(), Config{DSN: file, Keys: d.keys, Log: authtest.Log(t)}); !errors.Is(err, ErrInUse) {
		t.Errorf("a second Open of one process: %v, want %v", err, ErrInUse)
	}
	want(t, "Close", s.Close(), nil)
	want(t, "Close", mustOpenNow(t, d).Close(), nil)
	if _, err := Open(t.Context(),
		Config{DSN: file + "x", Keys: d.keys, Attach: true, Log: authtest.Log(t)}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Attach to no file: %v, want %v", err, os.ErrNotExist)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file's permissions are %v, %v; want 0600", info.Mode(), err)
	}
}
