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

// secrets are the secrets that the tests of this process have obtained. Tests register them, and
// search their logs for all of them.
type secrets struct {
	mu    sync.Mutex
	whole map[string]string // short ones, with their kind
	// pieces of long secrets; they are adjacent, so that each part of twice their length contains
	// one
	pieces map[string]string
}

const piece = 12

// known is the registry of a process.
var known = sync.OnceValue(func() *secrets { return &secrets{whole: map[string]string{}, pieces: map[string]string{}} })

// Secret registers a secret: no log may show it, or a useful part of it. Public parts are ignored:
// token prefixes, key ids, claims of a JWT. Values of less than six characters are too common to
// search for.
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

// Log returns a debug log, which also writes to others, and fails the test at its end if the log
// shows a secret. For a benchmark it discards. In a child process t is nil: the log only writes to
// others, and the parent's test searches it.
//
// All tests must use this log; integration/searched_test.go finds others.
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

// Searched returns a writer, which also writes to others, and fails the test at its end if the
// written text shows a secret. It may be used by several goroutines.
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

// Command returns the writers for a command that runs to its end. Its output is searched for
// secrets, except what it is meant to print on standard output.
func Command(t testing.TB, args []string, stdout, stderr io.Writer) (out, errs io.Writer) {
	t.Helper()
	what := "what junction " + strings.Join(args[:min(2, len(args))], " ") + " writes"
	errs = Searched(t, what, stderr)
	switch {
	case len(args) > 0 && args[0] == "call": // what a tool has answered
		return stdout, errs
	case len(args) > 1 && args[0] == "keys" && args[1] == "create": // prints the new key, this once
		return made{stdout}, errs
	}
	return Searched(t, what, stdout), errs
}

// made receives new keys and registers them.
type made struct{ io.Writer }

func (m made) Write(key []byte) (int, error) {
	Secret("an API key", strings.TrimSpace(string(key)))
	return m.Writer.Write(key)
}

// written keeps what was written until the end of the test.
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

// Canary is the prefix of all constant secrets in tests, so that they are found in every process
// and package.
const Canary = "canary-"

// shaped matches keys, tokens and codes of this server, including those of foreign clients, and
// constant secrets of tests.
var shaped = regexp.MustCompile(`jct_key_[0-9A-Za-z]{8}_[0-9A-Za-z]{8}|jct_(?:at|rt|ac)_[0-9A-Za-z_-]{20}|` + Canary +
	`[0-9A-Za-z]+`)

// MustTellNothing fails the test for each kind of secret that a text shows, with the first line
// that does.
func MustTellNothing(t testing.TB, what, text string) {
	t.Helper()
	k := known()
	k.mu.Lock()
	defer k.mu.Unlock()
	reported := map[string]bool{}
	for line := range strings.Lines(text) {
		if found := shaped.FindString(line); found != "" && !reported["shaped"] {
			reported["shaped"] = true
			t.Errorf("%s shows what looks like a secret: %s\n%s", what, found, line)
		}
		for i := 0; i+piece <= len(line); i++ {
			if kind := k.pieces[line[i:i+piece]]; kind != "" && !reported[kind] {
				reported[kind] = true
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

// WithCheck completes a made-up text to the form of an API key.
func WithCheck(s string) string {
	const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	sum, check := crc32.ChecksumIEEE([]byte(s)), make([]byte, 6)
	for i := range check {
		check[5-i] = base62[sum%62]
		sum /= 62
	}
	return s + string(check)
}
