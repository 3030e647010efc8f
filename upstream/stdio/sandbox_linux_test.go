package stdio

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"junction/auth/authtest"
)

// parentSignal is the signal with which this process dies with its parent. Only the first thread has it,
// on which the initialization runs.
var parentSignal = func() (signal int32) {
	if err := unix.Prctl(unix.PR_GET_PDEATHSIG, uintptr(unsafe.Pointer(&signal)), 0, 0, 0); err != nil {
		return -1
	}
	return signal
}()

var _ = role("standing", func() { // tells where it stands, and which files it has
	session, _ := unix.Getsid(0)
	fmt.Fprintf(os.Stderr, "leads its group: %v, its session: %v, dies with its parent by signal %d\n",
		unix.Getpgrp() == os.Getpid(), session == os.Getpid(), parentSignal)
	ls := exec.Command("ls", "/proc/self/fd")
	ls.Stdin, ls.Stdout, ls.Stderr = os.Stdin, os.Stderr, os.Stderr
	ls.Run()
	os.Exit(3)
})

// TestChildLeadsItsOwnSession: a child leads its own session and group, dies with us, and has no
// file of ours, with a sandbox as without. In a sandbox it has none that we were started with
// either.
func TestChildLeadsItsOwnSession(t *testing.T) {
	// A file that we have got from who started us: it goes to all that we start.
	given, err := unix.Dup(2)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(given)
	before, err := exec.Command("ls", "/proc/self/fd").Output()
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Command: os.Args[:1], Env: Environment{Own: map[string]string{roleEnv: "standing"}}, Confine: confinedTest(),
		Log: authtest.Log(t)}
	w, err := Open(o, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	exit, ok := errors.AsType[*ExitError](w.Wait())
	if !ok || exit.How != "exited with status 3" {
		t.Fatalf("it ended with %v, %+v", ok, exit)
	}
	where, files, _ := strings.Cut(exit.Stderr, "\n")
	if want := "leads its group: true, its session: true, dies with its parent by signal 9"; where != want {
		t.Errorf("it %s, want %s", where, want)
	}
	want := strings.Fields(string(before))
	if o.Confine != nil {
		want = []string{"0", "1", "2", "3"} // 3 is what ls reads
	}
	if got := strings.Fields(files); !slices.Equal(got, want) {
		t.Errorf("it has the files %q, want %q", got, want)
	}
}
