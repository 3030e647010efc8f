package harness

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"

	"junction/auth/authtest"
	"junction/integration/harness/process"
	"junction/upstream/upstreamtest"
)

// roleVariable is the environment variable with the role of a test binary.
const roleVariable = "JUNCTION_ROLE"

// Main is the TestMain of a package of tests. It runs the tests, unless the test binary was started
// as another program: an upstream of package upstreamtest, or one of the package's own roles.
func Main(m *testing.M, roles map[string]func(args []string) error) { MainWith(m, beside, roles) }

// MainWith is Main with another number of tests that run at once.
func MainWith(m *testing.M, beside int, roles map[string]func(args []string) error) {
	os.Exit(run(m, beside, roles))
}

func run(m *testing.M, beside int, roles map[string]func(args []string) error) int {
	upstreamtest.RunIfChild()
	if name := os.Getenv(roleVariable); name != "" {
		role, ok := roles[name]
		if !ok {
			fmt.Fprintf(os.Stderr, "%s: there is no role %q\n", roleVariable, name)
			return 2
		}
		if err := role(os.Args[1:]); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
			return 1
		}
		return 0
	}
	os.RemoveAll(BuildDir()) // a process with this PID that was killed may have left it
	defer os.RemoveAll(BuildDir())
	// The path is short, because sockets have short paths, and always as long, because lines of output are
	// broken where paths are longer.
	files := filepath.Join(temp(), fmt.Sprintf("jt%07d", os.Getpid()))
	os.RemoveAll(files)
	defer os.RemoveAll(files)
	if err := process.Prepare(files); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	// The configuration of the person who runs the tests must not replace the demo.
	if err := os.Setenv("XDG_CONFIG_HOME", filepath.Join(BuildDir(), "no-configuration")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	// A program under the race detector otherwise waits a second at its end for races of goroutines
	// that are left. Junction leaves none.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if Processes() > 1 { // each test takes several processes
		beside = 2 * runtime.NumCPU()
	}
	// The command line is read later, so that -parallel replaces this value.
	if err := flag.Set("test.parallel", strconv.Itoa(beside)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if !clusters().end() {
		code = max(code, 1)
	}
	authtest.StopPostgres()
	for _, thing := range process.Left(Patience) {
		code = max(code, 1)
		fmt.Fprintf(os.Stderr, "left behind when all tests have ended: %s\n", thing)
	}
	return code
}
