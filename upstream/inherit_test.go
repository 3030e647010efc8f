package upstream

import (
	"slices"
	"testing"
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
