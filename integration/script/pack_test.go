//go:build unix

package script

import (
	"bufio"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/rogpeppe/go-internal/testscript"

	"junction/auth/authtest"
)

func cmdPackServe(ts *testscript.TestScript, neg bool, args []string) {
	once(ts, neg, len(args) >= 2, "packserve NAME ARG ...")
	cmd := exec.Command(filepath.Join(filepath.SplitList(ts.Getenv("PATH"))[0], "junction-pack"),
		append([]string{"serve"}, args[1:]...)...)
	cmd.Dir = ts.MkAbs(".")
	cmd.Env = []string{"PATH=" + ts.Getenv("PATH"), "HOME=" + ts.Getenv("HOME")}
	cmd.Stderr = authtest.Searched(ts.Value(junctionKey{}).(*junctionProcess).t, "what junction-pack writes")
	out, err := cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	ended := make(chan error, 1)
	lines := bufio.NewReader(out)
	line, err := lines.ReadString('\n')
	go func() {
		io.Copy(io.Discard, lines)
		ended <- cmd.Wait()
	}()
	ts.Defer(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		if err := <-ended; err != nil {
			ts.Logf("junction-pack: %v", err)
		}
	})
	_, url, ok := strings.Cut(strings.TrimSpace(line), "serving ")
	if err != nil || !ok {
		ts.Fatalf("junction-pack printed %q, %v", line, err)
	}
	setenv(ts, args[0], url)
}

func cmdGonePid(ts *testscript.TestScript, neg bool, args []string) {
	once(ts, neg, len(args) == 1, "gone_pid FILE")
	pid, err := strconv.Atoi(strings.TrimSpace(ts.ReadFile(args[0])))
	ts.Check(err)
	eventually(ts, func() string {
		if err := syscall.Kill(pid, 0); err == nil {
			return fmt.Sprintf("process %d runs", pid)
		}
		return ""
	})
}
