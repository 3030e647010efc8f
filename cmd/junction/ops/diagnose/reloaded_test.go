package diagnose

import (
	"fmt"
	"testing"
	"time"

	"junction/cmd/junction/base/config"
	"junction/upstream"
)

// TestReloadedNamesServersForAnHour: the lists are bounded, a server that the file still has is disabled and not
// removed, and a change of something else leaves the last reload as it was.
func TestReloadedNamesServersForAnHour(t *testing.T) {
	now := time.Now()
	change := &config.Change{Config: &config.Config{Upstreams: map[string]upstream.Config{"off": {}}},
		Changed: []string{"kept"}, Removed: []string{"gone", "off"}}
	for n := range mostReloaded + 2 {
		change.Added = append(change.Added, fmt.Sprint("n", n))
	}
	r := NewReloaded(change, now)
	if len(r.Added) != mostReloaded || r.More != 2 {
		t.Errorf("%d names and %d more, want %d and 2", len(r.Added), r.More, mostReloaded)
	}
	r.Added = r.Added[:1]
	if got, want := r.String(), "added n0; changed kept; removed gone; disabled off; and 2 more"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if r.Lately(now.Add(reloadedFor-1)) != r || r.Lately(now.Add(reloadedFor)) != nil {
		t.Error("the reload is not shown for exactly an hour")
	}
	if got := NewReloaded(&config.Change{Config: change.Config, Policies: []string{"staff"}}, now); got != nil {
		t.Errorf("a change of policies gives %v", got)
	}
}
