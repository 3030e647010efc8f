package authtest

import (
	"bytes"
	"hash/crc32"
	"io"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// secrets are those that the tests of this process have come by so far: whoever obtains one says
// so, and whoever has a log at its end looks for all of them.
type secrets struct {
	mu    sync.Mutex
	whole map[string]string // short ones, with their kind
	// of long ones: the pieces are next to each other, so that each part of a secret that is twice
	// as long holds one
	pieces map[string]string
}

const piece = 12

// known is the one of a process.
var known = sync.OnceValue(func() *secrets { return &secrets{whole: map[string]string{}, pieces: map[string]string{}} })

// Secret has no log show a value from now on, nor a part of it that is worth anything. What
// everybody may know of it is left out: what tokens of a kind begin with, the id of a key, the
// claims of a JWT. Values of less than six letters are too common to look for.
func Secret(kind, value string) {
	switch {
	case strings.HasPrefix(value, "jct_key_") && len(value) > 17:
		value = value[17:]
	case strings.HasPrefix(value, "jct_") && len(value) > 7:
		value = value[7:]
	case strings.HasPrefix(value, "ey") && strings.Count(value, ".") == 2:
		value = value[strings.LastIndexByte(value, '.'):]
	}
	k := known()
	k.mu.Lock()
	defer k.mu.Unlock()
	for part := range strings.SplitSeq(value, ".") { // each half of a token of ours is a secret
		if len(part) >= 6 && len(part) < 2*piece {
			k.whole[part] = kind
			continue
		}
		for ; len(part) >= piece; part = part[piece:] {
			k.pieces[part[:piece]] = kind
		}
	}
}

// Log returns a log of everything that there is to say, which also goes to others, and fails the
// test at its end if it shows a secret. That of a benchmark says nothing. A process that a test has
// started has no test, but nil: what it says goes to others alone, and the test searches what it
// reads of that.
//
// All that a test makes of ours takes its log from here: what makes one in another way, or leaves
// it out, is found by integration/searched_test.go.
func Log(t testing.TB, others ...io.Writer) *slog.Logger {
	w := io.MultiWriter(others...)
	if t != nil {
		t.Helper()
		if _, benchmark := t.(*testing.B); benchmark {
			return slog.New(slog.DiscardHandler)
		}
		w = Searched(t, "the log", others...)
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// Searched returns where to write what others may read, which also goes to them, and fails the test
// at its end if it shows a secret. Several goroutines may write at once.
func Searched(t testing.TB, what string, others ...io.Writer) io.Writer {
	t.Helper()
	w := &written{others: others}
	t.Cleanup(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		MustTellNothing(t, what, w.text.String())
	})
	return w
}

// Command returns where the program writes while it runs a command to its end: what also goes to
// stdout and stderr is searched, but for what a command is asked to print, which it does on
// standard output alone.
func Command(t testing.TB, args []string, stdout, stderr io.Writer) (out, errs io.Writer) {
	t.Helper()
	what := "what junction " + strings.Join(args[:min(2, len(args))], " ") + " writes"
	errs = Searched(t, what, stderr)
	switch {
	case len(args) > 0 && args[0] == "call": // what a tool has answered
		return stdout, errs
	case len(args) > 1 && args[0] == "keys" && args[1] == "create": // a key, which nobody is shown again
		return made{stdout}, errs
	}
	return Searched(t, what, stdout), errs
}

// made is where new keys are written.
type made struct{ io.Writer }

func (m made) Write(key []byte) (int, error) {
	Secret("an API key", strings.TrimSpace(string(key)))
	return m.Writer.Write(key)
}

// written is what was written so far, for the end of the test.
type written struct {
	others []io.Writer

	mu   sync.Mutex
	text bytes.Buffer
}

func (w *written) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text.Write(b)
	for _, other := range w.others {
		if n, err := other.Write(b); err != nil {
			return n, err
		}
	}
	return len(b), nil
}

// Canary is what each secret begins with that is a constant of a test, so that it is found wherever
// it comes to, in whatever process and package.
const Canary = "canary-"

// shaped is what can only be a key, a token or a code of ours, of which clients that others wrote
// tell nobody, or a constant of a test.
var shaped = regexp.MustCompile(`jct_key_[0-9A-Za-z]{8}_[0-9A-Za-z]{8}|jct_(?:at|rt|ac)_[0-9A-Za-z_-]{20}|` + Canary +
	`[0-9A-Za-z]+`)

// MustTellNothing fails the test for each kind of secret that a log shows, with the first line that
// does.
func MustTellNothing(t testing.TB, what, text string) {
	t.Helper()
	k := known()
	k.mu.Lock()
	defer k.mu.Unlock()
	told := map[string]bool{}
	for line := range strings.Lines(text) {
		if found := shaped.FindString(line); found != "" && !told["shaped"] {
			told["shaped"] = true
			t.Errorf("%s shows what looks like a secret: %s\n%s", what, found, line)
		}
		for i := 0; i+piece <= len(line); i++ {
			if kind := k.pieces[line[i:i+piece]]; kind != "" && !told[kind] {
				told[kind] = true
				t.Errorf("%s shows a part of a secret, %s: …%s…\n%s", what, kind, line[i:i+piece], line)
			}
		}
	}
	for secret, kind := range k.whole {
		if i := strings.Index(text, secret); i >= 0 {
			line := text[strings.LastIndexByte(text[:i], '\n')+1:]
			line, _, _ = strings.Cut(line, "\n")
			t.Errorf("%s shows a secret, %s: %s\n%s", what, kind, secret, line)
		}
	}
}

// WithCheck completes what somebody made up to the form of an API key: the check is no secret.
func WithCheck(s string) string {
	const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	sum, check := crc32.ChecksumIEEE([]byte(s)), make([]byte, 6)
	for i := range check {
		check[5-i] = base62[sum%62]
		sum /= 62
	}
	return s + string(check)
}
