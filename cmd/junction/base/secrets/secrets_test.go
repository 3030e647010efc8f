package secrets

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"junction/upstream"
)

// printer stands for the programs of a test.
type printer struct {
	mu      sync.Mutex
	text    map[string]string // by program; a program that is not here fails
	hang    map[string]bool
	runs    []string // the upstreams, in the order of the runs
	at      []time.Time
	running map[string]int
	most    int // runs of one upstream at once
}

func (p *printer) run(ctx context.Context, one Program) (string, error) {
	p.mu.Lock()
	p.runs, p.at = append(p.runs, one.Upstream), append(p.at, time.Now())
	p.running[one.Upstream]++
	p.most = max(p.most, p.running[one.Upstream])
	text, works := p.text[one.Command[0]]
	hangs := p.hang[one.Command[0]]
	p.mu.Unlock()
	wait := time.After(time.Second)
	if hangs {
		wait = nil
	}
	select {
	case <-wait:
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running[one.Upstream]--
	if !works {
		return "", errors.New("no")
	}
	return text, nil
}

func (p *printer) set(program, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.text[program] = text
}

// total returns how many programs have run.
func (p *printer) total() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.runs)
}

// count returns how often the programs of an upstream have run.
func (p *printer) count(upstream string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, name := range p.runs {
		if name == upstream {
			n++
		}
	}
	return n
}

func newPrinter() *printer {
	return &printer{text: map[string]string{}, hang: map[string]bool{}, running: map[string]int{}}
}

func program(upstreamName, word string, every time.Duration) Program {
	return Program{Upstream: upstreamName, Command: []string{word}, Exec: upstream.Exec{Every: every}}
}

// TestProgramsRunAgain: programs run at once, after every, and after an answer 401 at most once a minute; those of one
// upstream one after another. Only another secret, or a first failure, is a change.
func TestProgramsRunAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newPrinter()
		o.set("a", "one")
		o.set("b", "two")
		p := newPrograms(o.run)
		defer p.Close()
		if _, problem := p.Value("u", []string{"a"}); !strings.Contains(problem, "the program a is running") {
			t.Errorf("before the first run, the problem is %q", problem)
		}
		list := []Program{program("u", "a", 10*time.Minute), program("u", "b", 10*time.Minute)}
		if !p.Follow(list) || p.Follow(list) {
			t.Error("Follow starts no programs, or the same ones twice")
		}
		p.Wait(t.Context())
		if got, problem := p.Value("u", []string{"a"}); got != "one" || problem != "" {
			t.Errorf("after the first run, Value = %q, %q", got, problem)
		}
		first := p.Version()
		time.Sleep(10 * time.Minute)
		if got := o.count("u"); got != 4 || p.Version() != first {
			t.Errorf("after every: %d runs, want 4, and version %d, want %d, because the secrets are the same", got,
				p.Version(), first)
		}
		<-p.Changed
		for range 100 { // many calls are answered 401
			p.Refused("u")
			time.Sleep(time.Second)
		}
		if got := o.count("u"); got != 8 {
			t.Errorf("100 answers 401 in 100 seconds: %d more runs, want 4: once at the first, and once a minute later", got-4)
		}
		o.set("a", "other")
		time.Sleep(2 * time.Minute)
		p.Refused("u")
		<-p.Changed
		if got, _ := p.Value("u", []string{"a"}); got != "other" || p.Version() == first {
			t.Errorf("after a change: Value = %q, version %d after %d", got, p.Version(), first)
		}
		synctest.Wait()
		if o.most != 1 {
			t.Errorf("%d programs of one upstream at once, want 1", o.most)
		}
	})
}

// TestProgramsRunForCallersThatWait: callers whose secret was refused share one round, and have its secret. Less than a
// minute after it, nobody waits. A program that hangs keeps a caller for ten seconds, and a caller that leaves, or whose
// upstream gets another program, not at all.
func TestProgramsRunForCallersThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newPrinter()
		o.set("a", "one")
		p := newPrograms(o.run)
		defer p.Close()
		p.Follow([]Program{program("u", "a", time.Hour)})
		p.Wait(t.Context())
		o.set("a", "two")
		var callers sync.WaitGroup
		for range 100 {
			callers.Go(func() {
				p.Again(t.Context(), "u")
				if got, _ := p.Value("u", []string{"a"}); got != "two" {
					t.Errorf("a caller has the secret %q", got)
				}
			})
		}
		callers.Wait()
		if got := o.count("u"); got != 2 {
			t.Errorf("%d runs, want one at the start and one for 100 callers", got)
		}
		waits := func(ctx context.Context) time.Duration {
			begun := time.Now()
			p.Again(ctx, "u")
			return time.Since(begun)
		}
		if got := waits(t.Context()); got != 0 || o.count("u") != 2 {
			t.Errorf("at once after that, a caller waits %v, %d runs", got, o.count("u"))
		}
		time.Sleep(time.Minute)
		o.mu.Lock()
		o.hang["a"] = true
		o.mu.Unlock()
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if got := waits(short); got != time.Second {
			t.Errorf("a caller that leaves waits %v", got)
		}
		if got := waits(t.Context()); got != mostAgain {
			t.Errorf("a program that hangs keeps a caller for %v", got)
		}
		time.AfterFunc(time.Second, func() { p.Follow(nil) })
		if got := waits(t.Context()); got != time.Second {
			t.Errorf("a program that the file no longer has keeps a caller for %v", got)
		}
	})
}

// TestProgramThatFails: a failure leaves the secret that was printed before, and is tried again a minute later. A
// program that hangs keeps no other upstream from its secrets.
func TestProgramThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newPrinter()
		o.set("works", "one")
		o.hang["hangs"], o.text["hangs"] = true, "late"
		p := newPrograms(o.run)
		defer p.Close()
		p.Follow([]Program{program("bad", "fails", time.Hour), program("good", "works", time.Hour),
			program("slow", "hangs", time.Hour)})
		time.Sleep(2 * time.Second)
		if got, problem := p.Value("good", []string{"works"}); got != "one" || problem != "" {
			t.Errorf("beside a program that hangs, Value = %q, %q", got, problem)
		}
		if got, problem := p.Value("bad", []string{"fails"}); got != "" || problem != "no" {
			t.Errorf("after a failure, Value = %q, %q", got, problem)
		}
		o.set("fails", "at last")
		time.Sleep(time.Minute)
		if got, _ := p.Value("bad", []string{"fails"}); got != "at last" {
			t.Errorf("a minute after a failure, Value = %q", got)
		}
		before, at := p.Version(), time.Now()
		o.mu.Lock()
		delete(o.text, "fails")
		o.mu.Unlock()
		p.Refused("bad")
		time.Sleep(5 * time.Second)
		printed, err := p.Printed("bad", []string{"fails"})
		if got, problem := p.Value("bad", []string{"fails"}); got != "at last" || problem != "" || p.Version() != before {
			t.Errorf("after a later failure, Value = %q, %q, and a change: %t", got, problem, p.Version() != before)
		}
		if err == nil || printed.IsZero() || printed.After(at) {
			t.Errorf("after a later failure, Printed = %v, %v", printed, err)
		}
	})
}

// TestProgramsOfAnotherFile: a program that the file no longer names does not run again, and a secret stays that another
// section exec concerns.
func TestProgramsOfAnotherFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newPrinter()
		o.set("a", "one")
		p := newPrograms(o.run)
		defer p.Close()
		p.Follow([]Program{program("u", "a", time.Hour), program("gone", "a", time.Hour)})
		p.Wait(t.Context())
		p.Follow([]Program{program("u", "a", time.Minute)})
		if got, problem := p.Value("u", []string{"a"}); got != "one" {
			t.Errorf("after a change of every, Value = %q, %q", got, problem)
		}
		time.Sleep(2 * time.Hour)
		if o.count("gone") != 1 || o.count("u") < 100 {
			t.Errorf("%d and %d runs, want 1 of the program that has gone, and one each minute", o.count("gone"), o.count("u"))
		}
	})
}

// TestManyProgramsTakeTurns: a bound holds for the programs of all upstreams.
func TestManyProgramsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newPrinter()
		p := newPrograms(o.run)
		defer p.Close()
		var list []Program
		for i := range 3 * atOnce {
			list = append(list, program(fmt.Sprint("u", i), "a", time.Hour))
		}
		p.Follow(list)
		synctest.Wait()
		if got := o.total(); got != atOnce {
			t.Errorf("%d programs at once, want %d", got, atOnce)
		}
		p.Wait(t.Context())
		if got := o.total(); got != 3*atOnce {
			t.Errorf("%d programs have run, want %d", got, 3*atOnce)
		}
	})
}

// TestMain is also the program of the tests of run.
func TestMain(m *testing.M) {
	switch os.Getenv("SECRETS_TEST_PRINTS") {
	case "":
		os.Exit(m.Run())
	case "secret":
		fmt.Println(strings.Join(os.Args[1:], "|"))
	case "blank":
		fmt.Println()
	case "nul":
		fmt.Print("a\x00b")
	case "much":
		for range 100 {
			fmt.Print(strings.Repeat("x", 10_000))
		}
	case "hang":
		fmt.Println("canary-on-stdout")
		time.Sleep(time.Hour)
	case "failure":
		fmt.Println("canary-on-stdout")
		fmt.Fprintln(os.Stderr, "first line\nnot signed in")
		os.Exit(7)
	case "environment":
		for _, variable := range os.Environ() {
			fmt.Println(strings.SplitN(variable, "=", 2)[0])
		}
	}
}

// TestRun: what a program prints is the secret, without a shell, or the reason is told without it.
func TestRun(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		prints string
		words  []string
		want   string
		err    string
	}{
		{prints: "secret", words: []string{"a b", "$HOME", "`id`", "; id"}, want: "a b|$HOME|`id`|; id"},
		{prints: "blank", err: "printed nothing; run it by hand, as the user of Junction, to see why"},
		{prints: "nul", err: "printed a NUL byte, which no secret has"},
		{prints: "much", err: "printed more than 64 KiB, which is no secret"},
		{prints: "failure", err: "exited with status 7; run it by hand, as the user of Junction, to see why"},
	} {
		t.Run(tt.prints, func(t *testing.T) {
			t.Setenv("SECRETS_TEST_PRINTS", tt.prints)
			p := Program{Command: append([]string{self}, tt.words...),
				Exec: upstream.Exec{InheritEnv: []string{"SECRETS_TEST_PRINTS"}}}
			got, err := run(t.Context(), p)
			if got != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.HasSuffix(err.Error(), tt.err) {
				t.Errorf("run = %q, %v; want %q, %s", got, err, tt.want, tt.err)
			}
			if err != nil && strings.Contains(err.Error(), "canary") {
				t.Errorf("the error has the output: %v", err)
			}
		})
	}
	t.Run("hang", func(t *testing.T) {
		t.Setenv("SECRETS_TEST_PRINTS", "hang")
		got, err := runWithin(t.Context(), Program{Command: []string{self},
			Exec: upstream.Exec{InheritEnv: []string{"SECRETS_TEST_PRINTS"}}}, 100*time.Millisecond)
		if got != "" || err == nil || !strings.Contains(err.Error(), "did not end within 100ms, and was ended; run it by hand") ||
			strings.Contains(err.Error(), "canary") {
			t.Errorf("run = %q, %v", got, err)
		}
	})
	t.Run("environment", func(t *testing.T) {
		t.Setenv("SECRETS_TEST_PRINTS", "environment")
		t.Setenv("SECRETS_TEST_OTHER", "canary-other")
		t.Setenv("AWS_SECRET_ACCESS_KEY", "canary-key")
		got, err := run(t.Context(), Program{Command: []string{self},
			Exec: upstream.Exec{InheritEnv: []string{"SECRETS_TEST_PRINTS"}}})
		names := strings.Fields(got)
		if err != nil || !slices.Contains(names, "PATH") || slices.Contains(names, "SECRETS_TEST_OTHER") ||
			slices.Contains(names, "AWS_SECRET_ACCESS_KEY") {
			t.Errorf("the program has the variables %v, %v", names, err)
		}
	})
}
