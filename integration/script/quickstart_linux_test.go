package script

import (
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"junction/integration/harness"
	"junction/integration/harness/npm"
)

// The page of the first five minutes is a real run: this test writes the files that the page shows into the
// home of a person, runs the commands of the page in their order at a terminal, and compares what the
// terminal got. The command
//
//	go test ./integration/script -run Quickstart -update
//
// writes the page again. Only the home folder differs in the page: it has the name /home/ann there.

var update = flag.Bool("update", false, "write cmd/QUICKSTART.md again")

const (
	quickstart = "../../cmd/QUICKSTART.md"
	ann        = "/home/ann"
	// inside is the variable of the process of this test that has a network of its own.
	inside = "JUNCTION_QUICKSTART"
)

// answers are those of the person on the page, by command. Enter accepts what a question proposes.
var answers = map[string]dialogue{
	"junction setup": {
		{"Which servers should Junction serve?", ""},
		{"in the folder of each client instead (isolation: folder)? [y/N]", ""},
		{"Start Junction now, and at each login? [Y/n]", ""},
		{"Which clients should use Junction?", ""},
		{"Remove from their files the servers that work in Junction? [Y/n]", ""},
	},
	"junction setup --undo": {{"Undo the setup? [Y/n]", ""}},
}

// volatile are the parts of an output that differ from run to run: times, process IDs, memory, dates of
// backups, and how long the servers take.
var volatile = []struct {
	pattern *regexp.Regexp
	as      string
}{
	{regexp.MustCompile(`\r`), ""},
	// The rows come in the order in which the servers answer, below a line if one is late; junction status has them.
	{regexp.MustCompile(`(?s)(with the machine, too\.\n).*?(\nWhich clients)`), "${1}ROWS$2"},
	// The questions to the servers have rows and a line of their own if they take longer than a second.
	{regexp.MustCompile(`(?s)(omit it \[all\]:).*?(\nThe command of files)`), "${1}ROWS$2"},
	{regexp.MustCompile(`process \d+`), "process N"},
	{regexp.MustCompile(`Junction \S+ is (ready|starting|degraded)`), "Junction VERSION is $1"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\d[ T]\d\d:?\d\d:?\d\d(-\d)?`), "DATE"},
	{regexp.MustCompile(`\b\d+(\.\d+)? (MB|KB)`), "N MB"},
	{regexp.MustCompile(`retrying (in \d+s|now)`), "retrying"},
	{regexp.MustCompile(`\b\d+(\.\d+)?(ms|s|m)\b`), "TIME"},
	{regexp.MustCompile(`\s+`), " "},
}

// settled returns an output without its volatile parts, and without the breaks of lines that depend on them.
func settled(text string) string {
	for _, v := range volatile {
		text = v.pattern.ReplaceAllString(text, v.as)
	}
	return strings.TrimSpace(text)
}

// TestQuickstart: the page of the first five minutes shows what a newcomer sees.
func TestQuickstart(t *testing.T) {
	if os.Getenv(inside) != "" {
		mustUp(t)
		mustFollow(t, os.Getenv(inside))
		return
	}
	harness.WithoutShort(t)
	harness.JunctionBinary(t)
	packages := npm.MustFolder(t)
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestQuickstart$", fmt.Sprintf("-update=%v", *update))
	// It uses the built program of all tests, as any other test binary.
	cmd.Env = append(os.Environ(), inside+"="+packages, "TMPDIR="+filepath.Dir(harness.BuildDir()))
	uid, gid := os.Getuid(), os.Getgid()
	cmd.SysProcAttr = &syscall.SysProcAttr{ // the usual port is free in a network of its own
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: gid, Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		t.Errorf("%v\n%s", err, out)
	case err != nil:
		t.Skip("NOT TESTED: no user can have a network of its own here: " + err.Error())
	}
}

// mustUp turns on the loopback interface of the network of this process.
func mustUp(t *testing.T) {
	t.Helper()
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(socket)
	request, err := unix.NewIfreq("lo")
	if err == nil {
		request.SetUint16(unix.IFF_UP)
		err = unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, request)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// fences are the blocks of the page: files, which a path in code stands above, and commands.
var fences = regexp.MustCompile("(?ms)(?:^`(~/[^`]+)`:\n\n)?^```(\\w*)\n(.*?)^```$")

// mustFollow follows the page with the packages of a folder.
func mustFollow(t *testing.T, packages string) {
	t.Helper()
	home := mustHome(t)
	program, bin := harness.JunctionBinary(t), filepath.Join(t.TempDir(), "bin")
	manager := "#!/bin/sh\n# The manager of a user, for one unit.\nstate='" + t.TempDir() + "'\n" + `stop() {
  [ -f "$state/pid" ] || return 0
  kill "$(cat "$state/pid")" 2> /dev/null
  while kill -0 "$(cat "$state/pid")" 2> /dev/null; do sleep 0.02; done
}
case "$2" in
restart)
  stop
  eval "exec $(sed -n 's/^ExecStart=//p' "$HOME/.config/systemd/user/"*.service)" < /dev/null >> "$state/log" 2>&1 &
  echo $! > "$state/pid" ;;
disable) stop ;;
esac
`
	// npx starts the package that the tests have installed.
	npx := fmt.Sprintf("#!/bin/sh\nname=$2\nshift 2\nexec node '%s'/node_modules/$name/dist/index.js \"$@\"\n", packages)
	err := errors.Join(os.MkdirAll(bin, 0o700), os.MkdirAll(filepath.Join(home, "notes"), 0o700),
		os.WriteFile(filepath.Join(home, "notes", "todo.md"), []byte("milk\n"), 0o600),
		os.Symlink(program, filepath.Join(bin, "junction")),
		os.WriteFile(filepath.Join(bin, "systemctl"), []byte(manager), 0o700),
		os.WriteFile(filepath.Join(bin, "npx"), []byte(npx), 0o700))
	if err != nil {
		t.Fatal(err)
	}
	env := []string{"HOME=" + home, "PATH=" + bin + ":" + os.Getenv("PATH"), "TERM=dumb", "NO_COLOR=1", "TZ=UTC",
		"XDG_RUNTIME_DIR=" + t.TempDir(), "USER=ann"}
	t.Cleanup(func() { // no process of a failed test stays
		cmd := exec.Command(program, "setup", "--undo", "--yes")
		cmd.Env = env
		_ = cmd.Run()
	})
	page, err := os.ReadFile(quickstart)
	if err != nil {
		t.Fatal(err)
	}
	before := map[string]string{}
	commands := 0
	now := fences.ReplaceAllStringFunc(string(page), func(block string) string {
		m := fences.FindStringSubmatch(block)
		file, language, text := m[1], m[2], m[3]
		switch {
		case file != "":
			mustPut(t, home, file, text)
			before[filepath.Join(home, file[2:])] = strings.ReplaceAll(text, ann, home)
			return block
		case !strings.HasPrefix(text, "$ junction"):
			return block
		}
		commands++
		var got strings.Builder
		for _, line := range strings.Split(text, "\n") {
			if command, is := strings.CutPrefix(line, "$ "); is {
				words := strings.Fields(strings.ReplaceAll(strings.ReplaceAll(command, ann, home), "'", ""))
				out, _ := talk(t, env, 90, answers[command], words[1:]...)
				fmt.Fprintf(&got, "$ %s\n%s", command, strings.ReplaceAll(out, home, ann))
			}
		}
		if !*update && settled(got.String()) != settled(text) {
			t.Errorf("the page shows\n%s\nand the terminal got\n%s\nTo write the page again: "+
				"go test ./integration/script -run Quickstart -update", text, got.String())
		}
		return fmt.Sprintf("```%s\n%s```", language, tidy(got.String()))
	})
	if len(before) < 2 || commands < 5 {
		t.Errorf("the page has %d files and %d blocks of commands", len(before), commands)
	}
	for file, want := range before {
		if text, err := os.ReadFile(file); err != nil || string(text) != want {
			t.Errorf("after the undo, %s is %v\n%s", file, err, text)
		}
	}
	if *update && !t.Failed() {
		if err := os.WriteFile(quickstart, []byte(now), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// tidy returns an output without spaces and carriage returns at the ends of lines and without an empty line at its
// end.
func tidy(text string) string {
	return regexp.MustCompile(`(?m)[ \r]+$`).ReplaceAllString(strings.TrimRight(text, "\n")+"\n", "")
}

// mustHome makes a home folder whose path is as long as that of the page, so that lines break at the same
// words.
func mustHome(t *testing.T) string {
	t.Helper()
	for range 100 {
		home := "/tmp/" + strings.ToLower(rand.Text()[:len(ann)-len("/tmp/")])
		err := os.Mkdir(home, 0o700)
		if err == nil {
			t.Cleanup(func() { os.RemoveAll(home) })
			return home
		}
		if !errors.Is(err, os.ErrExist) {
			t.Fatal(err)
		}
	}
	t.Fatal("no name for a home folder is free")
	return ""
}

// mustPut writes a file of the page into the home of the person.
func mustPut(t *testing.T, home, file, text string) {
	t.Helper()
	path := filepath.Join(home, strings.TrimPrefix(file, "~/"))
	err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700),
		os.WriteFile(path, []byte(strings.ReplaceAll(text, ann, home)), 0o600))
	if err != nil {
		t.Fatal(err)
	}
}
