package sandbox

import (
	"slices"
	"testing"
)

// TestProgramsOfOthersGetNoKeys: none of Junction's own variables goes to a program that
// shows its environment.
func TestProgramsOfOthersGetNoKeys(t *testing.T) {
	given := []string{"HOME=/h", "JUNCTION_KEY=canary-1", "Junction_Key=canary-2", "JUNCTION_MASTER_KEYS=canary-3", "MY_JUNCTION_X=1"}
	want := []string{"HOME=/h", "MY_JUNCTION_X=1"}
	if got := ForOthers(given); !slices.Equal(got, want) {
		t.Errorf("the environment is %q, want %q", got, want)
	}
	if given[1] != "JUNCTION_KEY=canary-1" {
		t.Error("ForOthers has changed its argument")
	}
}
