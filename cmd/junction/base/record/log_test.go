package record

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"junction/auth"
	"junction/cmd/junction/base/config"
	"junction/upstream"
	"junction/upstream/yamlread"
)

// writes are what was written, one for each system call.
type writes struct {
	mu   sync.Mutex
	list []string
}

func (w *writes) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.list = append(w.list, string(b))
	return len(b), nil
}

// take returns the writes since the last take.
func (w *writes) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := w.list
	w.list = nil
	return list
}

// TestLogOfCallsWaits: lines of calls are written together and not late, and before any other line
// that comes after them.
func TestLogOfCallsWaits(t *testing.T) {
	for name, log := range map[string]func(w *writes) *slog.Logger{
		"alone":           func(w *writes) *slog.Logger { return NewLog(w, config.Log{Format: config.LogText}) },
		"of JSON objects": func(w *writes) *slog.Logger { return NewLog(w, config.Log{Format: config.LogJSON}) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var w writes
				log := log(&w)
				calls := CallLog(log)
				for range 3 { // the timer is used again
					calls.Log(time.Now(), slog.LevelInfo, "one", nil)
					calls.Log(time.Now(), slog.LevelInfo, "two", nil)
					time.Sleep(logDelay - 1)
					if got := w.take(); len(got) > 0 {
						t.Fatalf("%q was written at once", got)
					}
					time.Sleep(time.Nanosecond)
					synctest.Wait()
					if got := w.take(); len(got) != 1 || strings.Count(got[0], "\n") != 2 || strings.Index(got[0], "one") > strings.Index(got[0], "two") {
						t.Fatalf("after the delay %q was written, want one and two at once", got)
					}
				}
				calls.Log(time.Now(), slog.LevelInfo, "one", nil)
				log.With("a", "b").WithGroup("g").Info("other")
				if got := strings.Join(w.take(), ""); strings.Count(got, "\n") != 2 || strings.Index(got, "one") > strings.Index(got, "other") {
					t.Errorf("another line brought %q, want it at once and after the call's", got)
				}
				calls.Log(time.Now(), slog.LevelInfo, "last", nil)
				FlushLog(log)
				FlushLog(log)
				if got := w.take(); len(got) != 1 || strings.Count(got[0], "last") != 1 {
					t.Errorf("at the end %q was written, want last", got)
				}
				const n = 2000
				for range n {
					calls.Log(time.Now(), slog.LevelInfo, "many", nil)
				}
				early := w.take()
				if len(early) == 0 {
					t.Errorf("none of %d lines was written before the delay", n)
				}
				time.Sleep(logDelay)
				synctest.Wait()
				all := append(early, w.take()...)
				for _, text := range all {
					if len(text) > 2*logSize || !strings.HasSuffix(text, "\n") {
						t.Errorf("%d bytes were written at once, the last of them %q", len(text), text[len(text)-1])
					}
				}
				if got := strings.Count(strings.Join(all, ""), "many"); got != n {
					t.Errorf("%d of %d lines were written", got, n)
				}
			})
		})
	}
}

// TestPlainTextIsWhatSlogWrites: a line of a call is the same from both writers.
func TestPlainTextIsWhatSlogWrites(t *testing.T) {
	var ours, theirs writes
	quick := CallLog(NewLog(&ours, config.Log{Format: config.LogText}))
	slow := slog.NewTextHandler(&theirs, nil)
	texts := []string{"", "a", "tools/call", "Claude-Code_1.0", "a b", "a=b", "a\"b", "a\\b", "a\nb", "é", "\xff", "a\x00", "a:b", "a@b", "<a>", "{}", "https://idp.example/#user~1", "a!b", "a#b", "a>b", "a\x7fb", "日本", "\u202e", "''", "ok"}
	plain := 0
	for i, text := range texts {
		for _, at := range []time.Time{time.Unix(1700000000, 0).UTC(), time.Unix(1700000000, 123456789), time.Unix(1700000000, 9999999).UTC(), time.Unix(1, 999999999).In(time.FixedZone("", -5400)), {}} {
			for _, level := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelError + 1} {
				message := []string{"call", text}[i%2]
				attrs := []slog.Attr{slog.String("name", text), slog.Duration("took", time.Duration(i*i*i*1234567)), slog.Int("sent", i-3), slog.String("a", "b"), slog.Int("c", 1),
					slog.String([]string{"d", text}[i%2], "e")}
				if i%7 == 6 {
					attrs = append(attrs, slog.Bool("other", true), slog.Group("g", slog.Int("x", 1)))
				}
				quick.Log(at, level, message, attrs)
				quick.lines.flush()
				r := slog.NewRecord(at, level, message, 0)
				r.AddAttrs(attrs...)
				slow.Handle(t.Context(), r)
				if _, ok := quick.lines.append(nil, at, level, message, attrs); ok {
					plain++
				}
				if got, want := strings.Join(ours.take(), ""), strings.Join(theirs.take(), ""); got != want {
					t.Fatalf("the line is\n%swant\n%s", got, want)
				}
			}
		}
	}
	if plain < 20 {
		t.Errorf("only %d lines were written the quick way", plain)
	}
}

// TestLogHidesSecrets: a secret that code logs by mistake does not appear.
func TestLogHidesSecrets(t *testing.T) {
	for _, format := range []config.LogFormat{config.LogText, config.LogJSON} {
		var out writes
		log := NewLog(&out, config.Log{Format: format, Level: slog.LevelDebug})
		key := auth.NewKey()
		log.Debug("with "+key, "Authorization", "Bearer canary-1", "cookie", "canary-2", "code", "canary-3", "refresh_token", "canary-4", "client_assertion", "canary-5",
			"what", "jct_at_canary-6.canary-7", "error", fmt.Errorf("it was %w", errors.New("jct_rt_canary-8.x")), slog.Group("request", "access_token", "canary-9"))
		log.With("Set-Cookie", "canary-10").Info("kept", "code", 404, "error", errors.New("as it was"), "upstream", "up", "took", time.Second)
		CallLog(log).Log(time.Now(), slog.LevelInfo, "call", []slog.Attr{slog.String("principal", "jct_at_canary-11.x")})
		FlushLog(log)
		text := strings.Join(out.take(), "")
		if strings.Contains(text, "canary") || strings.Contains(text, key[17:]) {
			t.Errorf("it tells %s", text)
		}
		for _, want := range []string{"404", "as it was", "up", "jct_at_…", "it was jct_rt_…"} {
			if !strings.Contains(text, want) {
				t.Errorf("it does not say %s any more: %s", want, text)
			}
		}
	}
}

// TestLogHidesKeysOfTheFile: no line shows the value of a key of the configuration that is called a secret, a
// password or a token.
func TestLogHidesKeysOfTheFile(t *testing.T) {
	keys := regexp.MustCompile(`"(\w*(?:secret|password|token))": ?\{`).FindAllStringSubmatch(config.Schema(), -1)
	if len(keys) == 0 {
		t.Fatal("the schema has no secret: this test reads something else")
	}
	for _, key := range keys {
		if !secretKey(key[1]) {
			t.Errorf("a line of the log shows the value of the key %s", key[1])
		}
	}
}

// noSecrets are the texts in the entry of an upstream that are no secrets, or that have no key which would say so.
var noSecrets = map[string]string{
	"command": "a program and its arguments", "env": "names and values that a process has from its start on",
	"inherit_env": "names", "exec.inherit_env": "names", "dir": "a path", "sandbox.read": "paths", "sandbox.write": "paths",
	"url": "an address", "headers": "names and values: each line of the log has only names",
	"tls.ca_file": "a path", "tls.cert_file": "a path", "tls.key_file": "a path", "tls.server_name": "a name",
	"auth.header": "a name", "auth.scheme": "a word", "auth.scopes": "names", "auth.client_id": "a name",
	"auth.private_key_file": "a path", "auth.cert_file": "a path", "auth.key_file": "a path", "auth.key_id": "a name", "auth.issuer": "an address",
	"auth.authorization_endpoint": "an address", "auth.token_endpoint": "an address", "auth.resource": "an address",
	"auth.audience": "a name", "auth.params": "parameters of an address that the browser of a user shows",
	"forward_headers": "names", "identity.audience": "a name", "prefix": "a name", "capabilities": "names", "tools.capabilities": "names", "tools.as": "a name",
}

// TestSecretsOfAnEntryAreNamed: each text in the entry of an upstream is in noSecrets, or it is a secret: then the log
// hides the value by the name of its key, and a mistake there blocks the upstream also while Junction runs.
func TestSecretsOfAnEntryAreNamed(t *testing.T) {
	found := map[string]bool{}
	var walk func(path string, of reflect.Type)
	walk = func(path string, of reflect.Type) {
		_, ofWords := of.MethodByName("Words")
		switch of.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
			walk(path, of.Elem())
		case reflect.Struct:
			for key, index := range yamlread.Keys(of) {
				walk(yamlread.Join(path, key), of.FieldByIndex(index).Type)
			}
		case reflect.String:
			if !ofWords {
				found[path] = true
			}
		}
	}
	walk("", reflect.TypeFor[upstream.Config]())
	for path := range found {
		key, _, _ := strings.Cut(path, ".")
		if noSecrets[path] == "" && !(secretKey(path) && upstream.IsCredential(key)) {
			t.Errorf("upstreams.*.%s: if it is a secret, have its name end in secret, password or token, so that the log hides "+
				"it, and give the field of %s the tag credential; if not, say in noSecrets what it is", path, key)
		}
	}
	for path := range noSecrets {
		if !found[path] || secretKey(path) {
			t.Errorf("noSecrets has upstreams.*.%s, which is no key, or a secret", path)
		}
	}
}

// BenchmarkCallLog compares the formatting of a call's line here with that of slog's TextHandler.
func BenchmarkCallLog(b *testing.B) {
	attrs := []slog.Attr{slog.String("id", "0123456789abcdef"), slog.String("client", "agent/1.2"),
		slog.String("principal", "key:ci"), slog.String("upstream", "files"), slog.String("tool", "files__read"),
		slog.String("outcome", "ok"), slog.Int("bytes", 1234), slog.Duration("took", 1234567)}
	at := time.Date(2026, 11, 22, 12, 0, 0, 123456789, time.UTC)
	text := NewLog(io.Discard, config.Log{Format: config.LogText})
	for name, log := range map[string]*slog.Logger{
		"here":        text,
		"TextHandler": slog.New(text.Handler().(prompt).Handler),
	} {
		b.Run(name, func(b *testing.B) {
			calls := CallLog(log)
			b.ReportAllocs()
			for b.Loop() {
				calls.Log(at, slog.LevelInfo, "call", attrs)
			}
		})
	}
}

// TestDurationsInJSONHaveAUnit: slog writes nanoseconds without a unit.
func TestDurationsInJSONHaveAUnit(t *testing.T) {
	var out strings.Builder
	NewLog(&out, config.Log{Format: config.LogJSON}).Info("call", "took", 1500*time.Microsecond)
	if !strings.Contains(out.String(), `"took_ms":1.5}`) {
		t.Errorf("the line is %s", out.String())
	}
}
