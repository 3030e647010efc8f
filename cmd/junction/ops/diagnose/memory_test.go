//go:build unix

package diagnose

import (
	"bufio"
	"os/exec"
	"syscall"
	"testing"
)

// TestMemory: the memory of a process includes that of its children.
func TestMemory(t *testing.T) {
	start := func(script string) int {
		t.Helper()
		cmd := exec.Command("sh", "-c", script)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
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
		t.Cleanup(func() {
			in.Close()
			_ = cmd.Wait()
		})
		if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		return cmd.Process.Pid
	}
	alone, family := start("echo; read x"), start("(sh -c 'echo; read x <&3') 3<&0; read y")
	m := MemoryOf([]int{alone, family, 1 << 30})
	if m[alone] <= 0 || m[family] <= m[alone] || m[1<<30] != 0 {
		t.Errorf("one process has %d bytes, one with a child %d", m[alone], m[family])
	}
	if leader, n := sessionIn([]byte("7 (a) b) S 1 7 8 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 99 1000 3 18446744073709551615")); leader != 8 || n == 0 {
		t.Errorf("session %d, %d bytes", leader, n)
	}
	if leader, n := sessionIn([]byte("7 (a")); leader != 0 || n != 0 {
		t.Errorf("a broken line gives %d, %d", leader, n)
	}
}
