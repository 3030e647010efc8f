package runfile

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// mustLive starts a process that lives until the test ends it.
func mustLive(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestHelperLives$")
	cmd.Env = append(os.Environ(), "JUNCTION_TEST_LIVES=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil { // it runs
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); _ = cmd.Wait() }) // a test may have waited
	return cmd
}

// TestHelperLives is the other process of these tests.
func TestHelperLives(t *testing.T) {
	if os.Getenv("JUNCTION_TEST_LIVES") == "" {
		t.Skip("it runs for another test")
	}
	os.Stdout.WriteString("lives\n")
	_, _ = os.Stdin.Read(make([]byte, 1)) // until the end of the test
}

// mustRecord writes a record as another process would.
func mustRecord(t *testing.T, file, name, text string) {
	t.Helper()
	records, err := recordsOf(os.LookupEnv, file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(records), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(records+name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestEndingProcessServesNothing: a process that has begun to end is present until it has given back its
// addresses, and Find prefers the process that serves, in whatever order the two were noted.
func TestEndingProcessServesNothing(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	file := filepath.Join(t.TempDir(), "config.yaml")
	record, err := Note(os.LookupEnv, file, Place{URL: "http://127.0.0.1:1/mcp", Grace: time.Hour}, "")
	if err != nil {
		t.Fatal(err)
	}
	record.End()
	if p, ok := Find(file); ok {
		t.Errorf("Find gives the process that is ending: %+v", p)
	}
	p, ok := Present(file)
	if !ok || !p.Ending() || p.Left() > time.Hour || p.Left() < time.Hour-time.Minute {
		t.Errorf("Present gives %+v %v with %v left, want the process that is ending", p, ok, p.Left())
	}
	if list := Endings(); len(list) != 1 || !list[0].Is(This()) {
		t.Errorf("Endings gives %+v", list)
	}
	other := ProcessOf(mustLive(t).Process.Pid)
	mustRecord(t, file, ".2.json", string(mustJSON(t, Place{URL: "http://127.0.0.1:2/mcp", Process: other})))
	if p, ok := Find(file); !ok || !p.Is(other) {
		t.Errorf("Find gives %+v %v, want the new process", p, ok)
	}
	record.Forget() // an older process does not remove the record of a newer one
	if p, ok := Find(file); !ok || !p.Is(other) {
		t.Errorf("Find gives %+v %v after the end of the old process, want the new one", p, ok)
	}
}

// TestTimeOfAnEndingProcess: neither a clock that was set nor a wrong record makes the time longer than
// the grace, or negative.
func TestTimeOfAnEndingProcess(t *testing.T) {
	for name, until := range map[string]time.Time{"the clock was set back": time.Now().Add(24 * time.Hour),
		"the clock was set forward": time.Now().Add(-24 * time.Hour), "it has not begun to end": {}} {
		if left := (Place{Grace: time.Minute, Until: until}).Left(); left != time.Minute {
			t.Errorf("%s: %v are left, want a minute", name, left)
		}
	}
	if left := (Place{Until: time.Now().Add(time.Hour)}).Left(); left != defaultGrace {
		t.Errorf("a record without a grace gives %v, want %v", left, defaultGrace)
	}
}

// TestFindIgnoresOtherProcesses: neither a process that has ended nor one that has its PID now serves the
// file, and so do no records that are empty, half written or no files. The next process removes what is left.
func TestFindIgnoresOtherProcesses(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	file := filepath.Join(t.TempDir(), "config.yaml")
	const url = "http://127.0.0.1:1/mcp"
	killed := mustLive(t)
	was := ProcessOf(killed.Process.Pid)
	if err := killed.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = killed.Wait() // it was killed
	again := This()   // a process with the PID of one that has ended
	if again.Start == "" {
		t.Skip("this system does not tell when a process has started")
	}
	again.Start = "1" + again.Start
	for name, text := range map[string]string{
		"killed": string(mustJSON(t, Place{URL: url, Process: was})), "again": string(mustJSON(t, Place{URL: url, Process: again})),
		"empty": "", "half": `{"url":"` + url, "negative": `{"pid":-1,"url":"x"}`, "none": `{"pid":0,"url":"x"}`,
		"large": `{"url":"` + strings.Repeat("x", maxRecord) + `"}`,
	} {
		mustRecord(t, file, "."+name+".json", text)
		if p, ok := Present(file); ok {
			t.Errorf("the record %q gives %+v", name, p)
		}
	}
	record, err := Note(os.LookupEnv, file, Place{URL: url}, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"killed", "again"} {
		if left := mustGlob(t, filepath.Join(filepath.Dir(record.name), "*."+name+".json")); len(left) > 0 {
			t.Errorf("%q stays", left)
		}
	}
	if p, ok := Find(file); !ok || !p.Is(This()) {
		t.Errorf("Find gives %+v %v, want this process", p, ok)
	}
}
