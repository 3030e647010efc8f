package script

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"junction/integration/harness"
	"junction/upstream/prose"
)

// mustTerminal returns both ends of a new terminal.
func mustTerminal(t *testing.T, rows, columns uint16) (ours, theirs *os.File) {
	t.Helper()
	ours, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ours.Close() })
	raw, err := ours.SyscallConn() // Fd would make reads block beyond their deadline
	if err != nil {
		t.Fatal(err)
	}
	var n int
	failed := raw.Control(func(fd uintptr) {
		err = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0)
		if err == nil {
			n, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
		}
		if err == nil {
			err = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns})
		}
	})
	if err := errors.Join(failed, err); err != nil {
		t.Fatal(err)
	}
	theirs, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { theirs.Close() })
	return ours, theirs
}

// shown returns the lines that a terminal shows and has scrolled away after this output, which uses
// only the sequences of package screen.
func shown(output string, columns int) []string {
	lines := []string{""}
	row, column := 0, 0
	for len(output) > 0 {
		var up int
		if n, _ := fmt.Sscanf(output, "\x1b[%dA", &up); n == 1 {
			row = max(0, row-up)
			output = output[strings.IndexByte(output, 'A')+1:]
			continue
		}
		if rest, ok := strings.CutPrefix(output, "\x1b[J"); ok {
			lines = append(lines[:row], "")
			output = rest
			continue
		}
		r := []rune(output)[0]
		output = output[len(string(r)):]
		switch {
		case r == '\r':
			column = 0
			continue
		case r != '\n' && column < columns:
			text := []rune(lines[row] + strings.Repeat(" ", max(0, column-len([]rune(lines[row])))))
			lines[row] = string(append(text[:column:column], append([]rune{r}, text[min(len(text), column+1):]...)...))
			column++
			continue
		case r != '\n': // the line is full
			output, column = string(r)+output, 0
		}
		if row++; row == len(lines) {
			lines = append(lines, "")
		}
	}
	return lines
}

// TestTerminalFirstScreen starts Junction at a terminal. The first screen is there once, and comes first,
// although the table was redrawn while the log was written. The log follows, without what the table shows.
func TestTerminalFirstScreen(t *testing.T) {
	const columns, servers = 110, 4
	binary := harness.JunctionBinary(t)
	config := "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\nupstreams:\n"
	for i := range servers {
		config += fmt.Sprintf("  server%d: { command: [sh, -c, 'sleep 0.%d; exec \"$1\" demo', sh, %q] }\n", i, 2*i, binary)
	}
	config += "  missing: { command: [no-such-program] }\n" // a warning of the file
	dir := t.TempDir()
	file := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	ours, theirs := mustTerminal(t, 40, columns)
	cmd := exec.CommandContext(t.Context(), binary, "--config", file)
	cmd.Env = append(os.Environ(), "HOME="+dir, "TERM=xterm")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs, theirs, theirs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close() // so that the end of the program ends the reading
	t.Cleanup(func() {
		cmd.Process.Signal(unix.SIGTERM)
		cmd.Wait()
	})
	ours.SetReadDeadline(time.Now().Add(harness.Patience))
	var output bytes.Buffer
	part := make([]byte, 4096)
	text := ""
	// the screen is drawn in parts: a read may end before the table is there again
	for !strings.Contains(output.String(), "key=upstreams.missing.command") {
		n, err := ours.Read(part)
		output.Write(part[:n])
		if err != nil {
			t.Fatalf("%v; the terminal got:\n%s", err, output.String())
		}
		text = strings.Join(shown(output.String(), columns), "\n")
	}
	if table, _, _ := strings.Cut(text, "\nNext: "); !strings.HasPrefix(text, "Junction serves ") || strings.Contains(table, "level=") {
		t.Error("the table is not first")
	}
	for what, want := range map[string]int{"Junction serves ": 1, "UPSTREAM ": 1, "upstream ready": 0, "msg=serving": 0,
		"  ready ": servers, "level=WARN": 1} {
		if got := strings.Count(text, what); got != want {
			t.Errorf("the terminal shows %q %d times, want %d", what, got, want)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
}

// TestTerminalImportAsks: at a terminal, an import of a project shows the whole command before it asks.
// Only a yes writes the file. Then it offers an endpoint for the servers of the project alone.
func TestTerminalImportAsks(t *testing.T) {
	home := t.TempDir()
	repo, file := filepath.Join(home, "repo"), filepath.Join(home, ".config", "junction", "config.yaml")
	if err := os.Mkdir(repo, 0o700); err != nil {
		t.Fatal(err)
	}
	servers := `{"mcpServers": {"tools": {"command": "sh", "args": ["-c", "true ` + strings.Repeat("x", 300) + `; \u001b[8mevil\u202e"]}}}`
	if err := os.WriteFile(filepath.Join(repo, ".mcp.json"), []byte(servers), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		answers  []string
		writes   bool
		endpoint string // a part of the file; "" is none
	}{{[]string{"\n"}, false, ""}, {[]string{"n\n"}, false, ""}, {[]string{"yes\n", "\n"}, true, ""},
		{[]string{"yes\n", "yes\n"}, true, "\nendpoints:\n  repo: { upstreams: [tools] }\n"}} {
		if err := os.RemoveAll(filepath.Dir(file)); err != nil {
			t.Fatal(err)
		}
		ours, theirs := mustTerminal(t, 40, 100)
		cmd := exec.CommandContext(t.Context(), harness.JunctionBinary(t), "import", "--project", ".", "--write")
		cmd.Dir = repo
		cmd.Env = append(os.Environ(), "HOME="+home, "TERM=xterm", "XDG_CONFIG_HOME=", "XDG_STATE_HOME="+home)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs, theirs, theirs
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ours.SetReadDeadline(time.Now().Add(harness.Patience))
		var output bytes.Buffer
		part := make([]byte, 4096)
		for i, answer := range test.answers {
			for strings.Count(output.String(), "[y/N] ") <= i {
				n, err := ours.Read(part)
				output.Write(part[:n])
				if err != nil {
					t.Fatalf("%v; the terminal got:\n%s", err, output.String())
				}
			}
			text := strings.ReplaceAll(output.String(), "\r\n            | ", "") // long values continue there
			want := `runs        sh -c $'true ` + strings.Repeat("x", 300) + `; \033[8mevil\342\200\256'`
			if !strings.Contains(text, want) || strings.ContainsAny(text, "\x1b\u202e") {
				t.Errorf("the terminal shows before the question:\n%s", output.String())
			}
			text = strings.Join(strings.Fields(text), " ")
			if i > 0 && !strings.Contains(text, "tools works in ~/repo, and every agent in every project can reach it. Add an "+
				"endpoint for this project alone (http://127.0.0.1:8420/repo/mcp)? [y/N]") {
				t.Errorf("the terminal shows before the second question:\n%s", output.String())
			}
			if _, err := ours.WriteString(answer); err != nil {
				t.Fatal(err)
			}
		}
		if err := cmd.Wait(); (err == nil) != test.writes {
			t.Errorf("after the answers %q the command ended with %v", test.answers, err)
		}
		text, err := os.ReadFile(file)
		if (err == nil) != test.writes || !strings.Contains(string(text), test.endpoint) ||
			strings.Contains(string(text), "\nendpoints:") != (test.endpoint != "") {
			t.Errorf("after the answers %q the configuration is (%v):\n%s", test.answers, err, text)
		}
	}
}

// TestTerminalIsNarrow: at 60, 80 and 120 columns no command's output and no error breaks inside a word, and no
// paragraph is broken twice. Only a word that is wider than the terminal has a wider line.
func TestTerminalIsNarrow(t *testing.T) {
	dir := t.TempDir()
	program := harness.JunctionBinary(t)
	file := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(file, []byte(`listen: 127.0.0.1:0
admin: 127.0.0.1:0
audit: { file: `+filepath.Join(dir, "audit.jsonl")+` }
upstreams:
  fine: { command: [junction, demo] }
  a-server-with-a-long-name: { command: [junction, demo] }
  bad: { command: [sh, -c, "echo cannot open the database that this server needs to do anything at all >&2; exit 7"] }
  missing: { command: [no-such-program] }
  loud: { command: [sh, -c, "printf '\\033[2J\\007<b>no</b>' >&2; exit 3"] }
  blocked: { command: [junction, demo], env: { KEY: "${NOT_SET}" } }
`), 0o600); err != nil {
		t.Fatal(err)
	}
	env := []string{"HOME=" + dir, "XDG_STATE_HOME=" + dir, "PATH=" + os.Getenv("PATH"), "TERM=xterm"}
	server := exec.CommandContext(t.Context(), program, "--config", file)
	server.Env = env
	out, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		server.Process.Signal(unix.SIGTERM)
		server.Wait()
	})
	screen := bufio.NewScanner(out)
	for next := false; !next; next = strings.HasPrefix(screen.Text(), "Next: ") { // after the first attempts
		if !screen.Scan() {
			t.Fatalf("junction does not run: %v", screen.Err())
		}
	}
	go io.Copy(io.Discard, out) // ends with the program
	commands := []string{"check", "doctor", "status", "list", "tools", "pins", "auth doctor", "why fine__echo",
		"why fine__nothing", "why a-server-with-a-long-name__echo", "call fine__nothing", "call fine__echo", "keys list",
		"packs list", "connect nothing", "service status", "import", "audit", "skills", "health", "users list", "remove nothing",
		"help", "help connect", "help setup", "help audit", "no-such-command"}
	for _, columns := range []int{60, 80, 120} {
		for _, line := range commands {
			args := append(strings.Fields(line), "--config", file)
			got := mustShow(t, env, uint16(columns), program, args...)
			if strings.TrimSpace(got) == "" {
				t.Errorf("%s shows nothing", line)
			}
			if strings.ContainsAny(got, "\x1b\x07") {
				t.Errorf("%s: a text of a server controls the terminal: %q", line, got)
			}
			for text := range strings.Lines(got) {
				text = strings.TrimSuffix(text, "\n")
				if utf8.RuneCountInString(text) > columns && strings.Contains(strings.TrimSpace(text), " ") {
					t.Errorf("%s: %d columns break this line inside a word: %q", line, columns, text)
				}
			}
			if name, _, _ := strings.Cut(line, " "); name == "status" || name == "doctor" || name == "why" {
				wantFilled(t, line, got, min(columns, prose.Width))
			}
			if line == "audit" && !strings.Contains(got, "  WHAT ") {
				t.Errorf("%s at %d columns shows\n%s", line, columns, got)
			}
		}
	}
}

// wantFilled fails if an indented paragraph has a line that ends before the next word needs it.
func wantFilled(t *testing.T, command, text string, columns int) {
	t.Helper()
	indent := func(line string) int { return len(line) - len(strings.TrimLeft(line, " ")) }
	lines := strings.Split(text, "\n")
	for i, line := range lines[1:] {
		before, words := lines[i], strings.Fields(line)
		at := indent(before)
		if mark := "→ "; strings.HasPrefix(before[at:], mark) {
			at += 2
		}
		if at < 4 || at != indent(line) || len(words) == 0 || words[0] == "→" {
			continue // not a paragraph with several lines
		}
		if utf8.RuneCountInString(before)+1+utf8.RuneCountInString(words[0]) <= columns {
			t.Errorf("%s: the line %q has room for %q", command, before, words[0])
		}
	}
}

// mustShow returns what a terminal of this width gets from a command.
func mustShow(t *testing.T, env []string, columns uint16, program string, args ...string) string {
	t.Helper()
	ours, theirs := mustTerminal(t, 40, columns)
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env = env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs, theirs, theirs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	ours.SetReadDeadline(time.Now().Add(harness.Patience))
	var output bytes.Buffer
	_, err := output.ReadFrom(ours) // fails when the command has closed the terminal
	cmd.Wait()                      // many of these commands fail
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("junction %s still runs; the terminal got:\n%s", strings.Join(args, " "), output.String())
	}
	return strings.ReplaceAll(output.String(), "\r\n", "\n")
}
