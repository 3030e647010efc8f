package upstream

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"junction/auth/authtest"
)

// TestWithheld names the variables that a command may need and does not get.
func TestWithheld(t *testing.T) {
	t.Setenv("JUNCTION_MASTER_KEYS", "secret")
	t.Setenv("SOME_API_KEY", "secret")
	c := Config{Command: []string{"env"}}
	if got := c.Withheld(); !slices.Contains(got, "SOME_API_KEY") || slices.Contains(got, "JUNCTION_MASTER_KEYS") {
		t.Errorf("withheld are %q", got)
	}
}

// TestWithheldLog: many commands that do not get a variable are one line of the log, and a reload without
// a change of that is none.
func TestWithheldLog(t *testing.T) {
	t.Setenv("SOME_API_KEY", "secret")
	var text bytes.Buffer
	s := Set{}
	log := authtest.Log(t, &text)
	of := func(names ...string) map[string]resolved {
		all := map[string]resolved{}
		for _, name := range names {
			all[name] = resolved{Config: Config{Command: []string{"env"}}}
		}
		return all
	}
	for _, step := range []struct {
		names []string
		want  string // "" means no line
	}{
		{[]string{"b", "a"}, "[a b]"},
		{[]string{"b", "a"}, ""},
		{[]string{"b", "a", "c"}, "[c]"},
	} {
		text.Reset()
		s.logWithheld(nil, of(step.names...), log)
		lines := strings.Count(text.String(), "\n")
		if step.want == "" && lines != 0 || step.want != "" && (lines != 1 || !strings.Contains(text.String(), step.want)) {
			t.Errorf("with %v the log has %q, want one line with %q", step.names, text.String(), step.want)
		}
		if strings.Contains(text.String(), "secret") {
			t.Error("the log has the value of a variable")
		}
	}
}
