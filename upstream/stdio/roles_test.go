//go:build unix

package stdio

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
)

// What the children of the stdio tests are. All of them hold the fifo and begin with a
// notification, so that the test knows that they run.

var _ = role("server", func() {
	begin()
	serve()
})

var _ = role("eof-deaf", func() { // goes on SIGTERM, not when its input ends
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	begin()
	<-term
	fmt.Fprintln(os.Stderr, "told to go")
	os.Exit(7)
})

var _ = role("stubborn", func() {
	signal.Ignore(syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	begin()
	forever()
})

var _ = role("deaf", func() {
	begin()
	forever()
})

var _ = role("busy", func() { // reads nothing before SIGUSR1
	usr1 := make(chan os.Signal, 1)
	signal.Notify(usr1, syscall.SIGUSR1)
	begin()
	<-usr1
	serve()
})

var _ = role("family", func() {
	spawn("stubborn", nil)
	begin()
	serve()
})

var _ = role("family-old", func() {
	spawn("eof-deaf", nil)
	begin()
	serve()
})

var _ = role("family-run", func() {
	cmd := spawn("stubborn", &syscall.SysProcAttr{Setsid: true})
	begin()
	fmt.Printf(`{"jsonrpc":"2.0","method":"runaway","params":[%d]}`+"\n", cmd.Process.Pid)
	serve()
})

var _ = role("wrapper", func() { // as npx: waits for a child that has its stdin and stdout
	holdFifo()
	cmd := spawn("server", nil)
	cmd.Wait()
})

// opens a transport to each role of its arguments, and prints a line when all of them run. Words
// between the roles name what happens to the watchdog
var _ = role("proxy", func() {
	k := new(Watchdog)
	for _, what := range os.Args[1:] {
		switch what {
		case "watchdog dies":
			k.cmd.Process.Kill()
			k.cmd.Process.Wait()
			continue
		case "watchdog hangs":
			k.cmd.Process.Signal(syscall.SIGSTOP)
			for n := 1; n > 0; {
				n, _ = k.writer.try([]byte("nothing\n"))
			}
			continue
		}
		begun := make(chan struct{}, 10)
		o := Options{Command: os.Args[:1], Env: Environment{Own: map[string]string{roleEnv: what, fifoEnv: os.Getenv(fifoEnv), "GORACE": "atexit_sleep_ms=0"}}, Watchdog: k,
			Confine: confinedTest(filepath.Dir(os.Getenv(fifoEnv)))}
		if _, err := Open(o, func(*jsonrpc.Message) { begun <- struct{}{} }); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(9)
		}
		<-begun
		if what == "family" { // both of it
			<-begun
		}
	}
	fmt.Print("ready")
	forever()
})

var _ = role("flooder", func() {
	holdFifo()
	for {
		fmt.Println("garbage")
	}
})

// forever lasts longer than any test, and ends all the same: a test that breaks off must not leave
// us behind for good.
func forever() {
	<-time.After(5 * time.Minute)
	os.Exit(6)
}

func begin() {
	holdFifo()
	fmt.Println(`{"jsonrpc":"2.0","method":"begun"}`)
}

// spawn starts a child that shares everything with us. It does not wait for the child, which says
// itself that it has begun.
func spawn(role string, attr *syscall.SysProcAttr) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleEnv+"="+role)
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = os.Stdin, os.Stdout, os.Stderr, attr
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(9)
	}
	return cmd
}

// serve answers until the input ends.
func serve() {
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	var whole []byte
	for {
		part, err := in.ReadSlice('\n')
		whole = append(whole, part...)
		if err == bufio.ErrBufferFull {
			continue
		}
		if err != nil {
			return
		}
		m, err := jsonrpc.Parse(whole, raw.DefaultDepth)
		if err != nil {
			fmt.Fprintf(os.Stderr, "what did we get? %v\n", err)
			os.Exit(8)
		}
		handle(&m)
		whole = whole[:0]
	}
}

func handle(m *jsonrpc.Message) {
	reply := func(result []byte) {
		os.Stdout.Write(append(append(jsonrpc.ResponseHead(nil, m.ID), result...), "}\n"...))
	}
	switch m.Method {
	case "": // the answer to a request of ours
		os.Stdout.Write(append(jsonrpc.AppendRequest(nil, "", "answered", m.Result), '\n'))
	case "echo":
		reply(m.Params)
	case "hang":
		os.Stdout.Write(append(jsonrpc.AppendRequest(nil, "", "hangs", nil), '\n'))
	case "say":
		text, err := hex.DecodeString(strings.Trim(string(m.Params), `["]`))
		if err != nil {
			os.Exit(8)
		}
		os.Stdout.Write(text)
	case "environment":
		dir, _ := os.Getwd()
		reply(fmt.Appendf(nil, "[%q,%q,%q,%q]", os.Getenv("JUNCTION_OURS"), os.Getenv("JUNCTION_THEIRS"), dir, os.Args[0]))
	case "flood":
		for range 1000 {
			io.WriteString(os.Stdout, strings.Repeat("garbage ", 64)+"\n")
			io.WriteString(os.Stderr, strings.Repeat("noise ", 80)+"\n")
		}
		reply(m.Params)
	case "complain":
		io.WriteString(os.Stderr, "first line\r\nbad \xff\xfe bytes\n"+strings.Repeat("l", 10_000)+"\nlast, without end")
		reply(m.Params)
	case "die":
		fmt.Fprint(os.Stderr, "starting\nthe disk is full\n")
		os.Exit(3)
	case "crash":
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case "half":
		io.WriteString(os.Stdout, `{"jsonrpc":"2.0","id":5,"resu`)
		os.Exit(0)
	case "mute":
		os.Stdout.Close()
	case "leave":
		spawn("flooder", nil)
		os.Exit(4)
	case "goodbye":
		os.Stdout.Write(append(jsonrpc.AppendRequest(nil, "", "leaving", nil), '\n'))
		reply(m.Params)
		os.Exit(5)
	default:
		os.Stdout.Write(append(jsonrpc.AppendError(nil, m.ID, &jsonrpc.Error{Code: -32601, Message: "no such method"}), '\n'))
	}
}
