package authtest

import (
	"bytes"
	"hash/crc32"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// secrets are those that the tests of this process have come by so far: whoever obtains one says so, and whoever has a log at its end looks for all of them.
type secrets struct {
	mu     sync.Mutex
	whole  map[string]string // short ones, with their kind
	pieces map[string]string // of long ones: the pieces are next to each other, so that each part of a secret that is twice as long holds one
}

const piece = 12

// known is the one of a process.
var known = sync.OnceValue(func() *secrets { return &secrets{whole: map[string]string{}, pieces: map[string]string{}} })

// Secret has no log show a value from now on, nor a part of it that is worth anything. What everybody may know of it is left out: what tokens of a kind begin with, the id of
// a key, the claims of a JWT. Values of less than six letters are too common to look for.
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

// Log returns a log of everything that there is to say, which fails the test if it shows a secret.
func Log(t testing.TB) *slog.Logger {
	t.Helper()
	w := &written{}
	t.Cleanup(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		MustTellNothing(t, "the log", w.text.String())
	})
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

type written struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (w *written) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(b)
}

// shaped is what can only be a key, a token or a code of ours, of which clients that others wrote tell nobody.
var shaped = regexp.MustCompile(`jct_key_[0-9A-Za-z]{8}_[0-9A-Za-z]{8}|jct_(?:at|rt|ac)_[0-9A-Za-z_-]{20}`)

// MustTellNothing fails the test for each kind of secret that a log shows, with the first line that does.
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
