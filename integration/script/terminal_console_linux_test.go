package script

import (
	"bytes"
	"io"
	"net/http"
	"net/http/cookiejar"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"junction/integration/harness"
	"junction/upstream/upstreamtest"
)

// dialog is a command at a terminal.
type dialog struct {
	t      *testing.T
	ours   *os.File
	output bytes.Buffer
	cmd    *exec.Cmd
}

// mustDialog starts `junction console` at a terminal, as the owner of a program.
func mustDialog(t *testing.T, p *harness.Program, args ...string) *dialog {
	t.Helper()
	ours, theirs := mustTerminal(t, 40, 200)
	d := &dialog{t: t, ours: ours, cmd: exec.CommandContext(t.Context(), harness.JunctionBinary(t),
		append([]string{"console", "--admin", strings.TrimPrefix(p.Admin, "http://")}, args...)...)}
	d.cmd.Env = append(append(os.Environ(), "HOME="+p.Dir, "TERM=xterm"), p.Owner()...)
	d.cmd.Stdin, d.cmd.Stdout, d.cmd.Stderr = theirs, theirs, theirs
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	ours.SetReadDeadline(time.Now().Add(harness.Patience))
	return d
}

// mustSay reads until the terminal shows the text, and returns the first group.
func (d *dialog) mustSay(text string) string {
	d.t.Helper()
	want, part := regexp.MustCompile(text), make([]byte, 4096)
	for {
		if m := want.FindSubmatch(d.output.Bytes()); m != nil {
			return string(m[len(m)-1])
		}
		n, err := d.ours.Read(part)
		d.output.Write(part[:n])
		if err != nil && !want.Match(d.output.Bytes()) {
			d.t.Fatalf("%v before %s; the terminal got:\n%s", err, text, d.output.String())
		}
	}
}

// mustType types a line.
func (d *dialog) mustType(line string) {
	d.t.Helper()
	if _, err := io.WriteString(d.ours, line+"\n"); err != nil {
		d.t.Fatal(err)
	}
}

// mustOpen opens an address in a browser, and returns the page.
func mustOpen(t *testing.T, browser *http.Client, url string) (status int, page string) {
	t.Helper()
	resp, err := browser.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

func mustBrowser(t *testing.T) *http.Client {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &http.Client{Jar: jar}
}

const (
	consoleAddress = `(http://127\.0\.0\.1:\d+/c/[a-z0-9]+/)`
	consoleCode    = `Does the page show the code ([A-Z0-9]{3}-[A-Z0-9]{3})\?`
)

// TestTerminalConsole: the owner compares the code of the page with that of the terminal. The browser of another user,
// who has read the address in the list of processes and was first, gets nothing after a no; the owner's own browser
// gets the pages after a yes, until the owner ends the session.
func TestTerminalConsole(t *testing.T) {
	harness.Waits(t)
	_, up := upstreamtest.Start(t, upstreamtest.Script{})
	p := harness.MustProgram(t, `upstreams: { good: { url: "`+up+`" } }`)
	d := mustDialog(t, p, "--no-browser")
	where := d.mustSay(consoleAddress)
	thief, own := mustBrowser(t), mustBrowser(t)
	_, stolen := mustOpen(t, thief, where)
	code := d.mustSay(consoleCode)
	status, page := mustOpen(t, own, where)
	if !strings.Contains(stolen, code) || status != http.StatusConflict || strings.Contains(page, code) || !strings.Contains(page, "Answer no at the terminal") {
		t.Fatalf("the owner sees %d, and the other user may not have %s:\n%s", status, code, page)
	}
	d.mustType("n")
	d.mustSay("the browser with this code was refused")
	if err := d.cmd.Wait(); err == nil {
		t.Error("a refusal has the exit code 0")
	}
	if status, page = mustOpen(t, thief, where); status != http.StatusNotFound {
		t.Errorf("the other user sees %d:\n%s", status, page)
	}

	d = mustDialog(t, p, "--no-browser")
	where = d.mustSay(consoleAddress)
	_, page = mustOpen(t, own, where)
	if code = d.mustSay(consoleCode); !strings.Contains(page, code) {
		t.Fatalf("the page does not show %s:\n%s", code, page)
	}
	if _, page = mustOpen(t, own, where); !strings.Contains(page, "Waiting for the terminal") || strings.Contains(page, code) {
		t.Errorf("before the answer, the page is:\n%s", page)
	}
	d.mustType("y")
	d.mustSay(`The console is open in the browser\.`)
	if err := d.cmd.Wait(); err != nil {
		t.Error(err)
	}
	if status, page = mustOpen(t, own, where); status != http.StatusOK || !strings.Contains(page, ">good</a>") || !strings.Contains(page, "<form") {
		t.Errorf("the owner sees %d:\n%s", status, page)
	}
	if status, page = mustOpen(t, thief, where); status != http.StatusForbidden || strings.Contains(page, ">good</a>") {
		t.Errorf("another browser sees %d:\n%s", status, page)
	}

	mustDialog(t, p, "--end").mustSay(`1 session of the console ended\.`)
	if status, page = mustOpen(t, own, where); status != http.StatusNotFound || strings.Contains(page, ">good</a>") {
		t.Errorf("after the end, the owner sees %d:\n%s", status, page)
	}
}

// TestTerminalConsoleInterrupted: after Ctrl-C at the question, the browser that has the code gets nothing.
func TestTerminalConsoleInterrupted(t *testing.T) {
	harness.Waits(t)
	p := harness.MustProgram(t, "upstreams: { a: { command: [junction, demo] } }")
	d := mustDialog(t, p, "--no-browser")
	where := d.mustSay(consoleAddress)
	browser := mustBrowser(t)
	mustOpen(t, browser, where)
	d.mustSay(consoleCode)
	if err := d.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := d.cmd.Wait(); err == nil {
		t.Error("an interrupted command has the exit code 0")
	}
	if status, page := mustOpen(t, browser, where); status != http.StatusNotFound {
		t.Errorf("the browser sees %d:\n%s", status, page)
	}
}
