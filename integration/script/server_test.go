//go:build unix

package script

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"junction/upstream/upstreamtest"
)

// scriptServer is the server over stdio that the scripts use: mcp-server [-life FILE] [-stubborn]
// [SCRIPT]. SCRIPT is a file that holds an upstreamtest.Script in JSON; without one the server has
// a tool for each behaviour.
//
// As long as it runs, it holds a lock on the file -life. It adds a line to the file when it starts.
// So a test can count its starts and see its end, without a process id, which another process may
// have later. A stubborn server ignores the end of its input, and SIGTERM.
func scriptServer(args []string) int {
	flags := flag.NewFlagSet(scriptServerName, flag.ContinueOnError)
	life := flags.String("life", "", "")
	stubborn := flags.Bool("stubborn", false, "")
	if flags.Parse(args) != nil {
		return 2
	}
	if err := runScriptServer(*life, flags.Arg(0), *stubborn); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", scriptServerName, err)
		return 1
	}
	return 0
}

func runScriptServer(life, file string, stubborn bool) error {
	var script upstreamtest.Script
	if file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(text, &script); err != nil {
			return fmt.Errorf("read %s: %w", file, err)
		}
	}
	if life != "" {
		f, err := os.OpenFile(life, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_SH); err != nil {
			return fmt.Errorf("lock %s: %w", life, err)
		}
		if _, err := fmt.Fprintf(f, "started %d\n", os.Getpid()); err != nil {
			return err
		}
	}
	if stubborn {
		signal.Ignore(syscall.SIGTERM)
	}
	if err := upstreamtest.New(script).ServeStdio(os.Stdin, os.Stdout); err != nil {
		return err
	}
	if stubborn {
		<-time.After(time.Hour) // the test has killed us long before
	}
	return nil
}
