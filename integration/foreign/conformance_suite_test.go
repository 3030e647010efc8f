package foreign

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strconv"
	"testing"
	"time"
)

// mustDriveAll has one process of the conformance suite play the servers of several scenarios, because
// starting Node and reading the suite takes longer than most of them. Each is a subtest, one after the other,
// which uses its server as use does; scenarios of the suite that are not in the list are over at once. Then
// judge gets what was found in each. own is this program, which the suite starts for each scenario.
// revision is "" for scenarios of extensions, which belong to no revision.
func mustDriveAll(t *testing.T, folder, own, suite, revision string, scenarios []string,
	use func(*testing.T, driven), judge func(*testing.T, string, conformance)) {
	t.Helper()
	told := make(chan driven)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d := driven{done: make(chan struct{})}
		if err := json.NewDecoder(r.Body).Decode(&d); err != nil {
			t.Errorf("the driver says: %v", err)
			return
		}
		select {
		case told <- d:
			<-d.done
		case <-r.Context().Done():
		}
	}))
	defer s.Close()
	patience := time.Duration(len(scenarios)) * conformancePatience
	dir, ended := t.TempDir(), make(chan error, 1)
	var found conformance
	args := []string{"client", "--command", own, "--suite", suite, "--timeout",
		strconv.FormatInt(patience.Milliseconds(), 10)}
	if revision != "" {
		args = append(args, "--spec-version", revision)
	}
	go func() {
		var err error
		found, err = conform(t.Context(), patience, folder, dir,
			[]string{"JUNCTION_ROLE=" + driverRole, driverURL + "=" + s.URL}, args...)
		ended <- err
	}()
	for running := true; running; {
		select {
		case d := <-told:
			if slices.Contains(scenarios, d.Scenario) {
				t.Run(path.Base(d.Scenario), func(t *testing.T) { use(t, d) })
			}
			close(d.done)
		case err := <-ended:
			if running = false; err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, scenario := range scenarios {
		t.Run(path.Join(path.Base(scenario), "found"), func(t *testing.T) { judge(t, scenario, found) })
	}
}
