package authtest

import (
	"fmt"
	"io"
	"strings"
	"testing"
)

// heard is a test whose result another test checks.
type heard struct {
	testing.TB
	said []string
	ends []func()
}

func (h *heard) Helper() {}

func (h *heard) Errorf(format string, args ...any) {
	h.said = append(h.said, fmt.Sprintf(format, args...))
}

func (h *heard) Cleanup(f func()) { h.ends = append(h.ends, f) }

// end ends the test, and returns its errors.
func (h *heard) end() string {
	for _, f := range h.ends {
		f()
	}
	return strings.Join(h.said, "\n")
}

// TestSecretsInTextAreFound: every part of a secret in a log is found, and other text is not.
func TestSecretsInTextAreFound(t *testing.T) {
	Secret("an access token", "jct_at_AbCdEfGhIjKlMnOpQrStUvWxYz0123456789_-AbCdE.ZyXwVuTsRqPoNmLkJiHgFeDcBa9876543210")
	Secret("an API key", "jct_key_a1b2c3d4_0a1b2c3d4e5f6g7h8i9j0a1b2c3d4e5f6g7h8i9j0k1l2m")
	Secret("a signed token", "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhbm4ifQ.c2lnbmF0dXJlIG9mIGEgdG9rZW4gdGhhdCBpcyBsb25n")
	Secret("a password", "hunter2")
	Secret("nothing", "ok")
	for text, want := range map[string]string{
		"x=jct_rt_0123456789abcdefghij":                   "looks like a secret",
		"x=jct_key_a1b2c3d4_00000000 of somebody":         "looks like a secret",
		"a constant=canary-7f3a of a test":                "looks like a secret",
		"the row canary":                                  "",
		"level=INFO msg=serving":                          "",
		"token=jct_at_… key=jct_key_a1b2c3d4 sub=ann":     "",
		"claims=eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhbm4ifQ.": "",
		"ok":                             "",
		"a=b\nx=IjKlMnOpQrStUvWxYz01234": "an access token",
		"half=ZyXwVuTsRqPoNmLkJiHgFeDcBa9876543210":          "an access token",
		"key=7h8i9j0a1b2c3d4e5f6g7h8i9j0k1l2m":               "an API key",
		"Authorization: Bearer x.y.dG9rZW4gdGhhdCBpcyBsb25n": "a signed token",
		"user:hunter2@host":                                  "a password",
	} {
		h := &heard{}
		MustTellNothing(h, "the log", text)
		said := strings.Join(h.said, "\n")
		if (want == "") != (said == "") || !strings.Contains(said, want) || want != "" &&
			!strings.Contains(said, text[strings.LastIndexByte(text, '\n')+1:]) {
			t.Errorf("%q is said to show %q, want %q and the line", text, said, want)
		}
	}
}

// TestAllOutputIsSearched: all output is searched at the end, also for secrets that are
// registered later, and passed on.
func TestAllOutputIsSearched(t *testing.T) {
	key := "jct_key_a1b2c3d4_" + strings.Repeat("Zz0y", 12) + "q"
	for name, test := range map[string]struct {
		write func(h *heard, w io.Writer)
		want  string // "" is nothing
	}{
		"a log": {func(h *heard, w io.Writer) { Log(h, w).Debug("x", "token", "canary-1") },
			"the log shows"},
		"a log before": {func(h *heard, w io.Writer) {
			Log(h, w).Debug("x", "word",
				"found-out")
			Secret("a word", "found-out")
		}, "the log shows a secret, a word"},
		"a log without secrets": {func(h *heard, w io.Writer) { Log(h, w).Debug("x", "token", "…") }, ""},
		"a process":             {func(_ *heard, w io.Writer) { Log(nil, w).Debug("x", "token", "canary-1") }, ""},
		"a command": {func(h *heard, w io.Writer) {
			o, _ := Command(h, []string{"tools"}, w, io.Discard)
			io.WriteString(o, "canary-1")
		}, "what junction tools writes shows"},
		"its standard error": {func(h *heard, w io.Writer) {
			_, e := Command(h, []string{"call", "x"}, io.Discard, w)
			io.WriteString(e, "canary-1")
		}, "what junction call x writes shows"},
		"the answer of a tool": {func(h *heard, w io.Writer) {
			o, _ := Command(h, []string{"call", "x"}, w, io.Discard)
			io.WriteString(o, "canary-1")
		}, ""},
		"nothing": {func(h *heard, w io.Writer) { o, _ := Command(h, nil, w, io.Discard); io.WriteString(o, "usage") },
			""},
		"a new key": {func(h *heard, w io.Writer) {
			o, _ := Command(h, []string{"keys", "create", "ci"}, w, io.Discard)
			io.WriteString(o, key+"\n")
		}, ""},
		"a new key, elsewhere": {func(h *heard, w io.Writer) {
			o, e := Command(h, []string{"keys", "create", "ci"}, io.Discard, w)
			io.WriteString(o, key+"\n")
			io.WriteString(e, "and again: "+key[20:40])
		}, "what junction keys create writes shows a part of a secret, an API key"},
	} {
		t.Run(name, func(t *testing.T) {
			h, others := &heard{}, &strings.Builder{}
			test.write(h, others)
			if before := len(h.said); before > 0 {
				t.Errorf("it says %q before its end", h.said)
			}
			if said := h.end(); !strings.HasPrefix(said, test.want) || (test.want == "") != (said == "") {
				t.Errorf("it is said that %q, want %q", said, test.want)
			}
			if others.Len() == 0 {
				t.Error("nobody else can read it")
			}
		})
	}
}
