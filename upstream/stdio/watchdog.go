//go:build unix

package stdio

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
)

// Watchdog kills remaining child processes if Junction dies without cleaning up: after kill -9, a
// second signal or a crash. It is one shell for all processes of a Set, in a session of its own.
// The shell reads the ids of the process groups from a pipe that only Junction writes to. The pipe
// ends when Junction ends, and the shell then signals the remaining groups in the same order as
// finish.
//
// The shell runs while there is a group. Junction does not wait for it. A shell that has died or
// stopped reading is killed, and the next child starts a new one. A child that is started in the
// very moment in which Junction is killed may be missed. Without /bin/sh there is no protection.
//
// The zero value is ready to use and watches no group.
type Watchdog struct {
	mu     sync.Mutex
	groups map[*process]bool
	cmd    *exec.Cmd // nil while there is none
	input  *os.File
	writer pipeWriter
}

// Unwatched returns why child processes may remain if Junction dies without cleaning up; "" if a
// Watchdog kills them.
func Unwatched() string {
	if _, err := os.Stat(shellPath); err != nil {
		return "there is no " + shellPath
	}
	return ""
}

// shellPath is the path of the shell.
const shellPath = "/bin/sh"

// watchdogScript is the script of the shell; its arguments are the groups that exist at its start.
// It ignores signals that are sent to all processes of Junction. When its input ends, the input of
// the children has ended, too. The script then waits two seconds (StopGrace), sends SIGTERM, waits
// two more and sends SIGKILL. Every second it drops groups that are empty, because their ids may be
// reused.
//
// kill is called in this form because dash, bash and busybox have no other form in common.
const watchdogScript = `# junction: ends its children when it cannot do so itself
trap '' HUP INT QUIT TERM
PATH=$PATH:/bin:/usr/bin
groups=" $* "
while read -r word group; do
	case $word in
	keep) groups="$groups$group " ;;
	forget) groups="${groups%% $group *} ${groups#* $group }" ;;
	esac
done
for signal in 0 0 TERM 0 KILL; do
	set -- $groups
	groups=
	for group; do kill -$signal -$group && groups="$groups $group"; done
	[ "$groups" ] && [ $signal != KILL ] || exit 0
	sleep 1
done
`

// keep adds the group of a process that was just started. After an error, the group is not killed
// if Junction is killed.
func (k *Watchdog) keep(p *process) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.groups == nil {
		k.groups = map[*process]bool{}
	}
	k.groups[p] = true
	if k.tryLine("keep", p) {
		return nil
	}
	return k.start()
}

// forget removes the group, if it is registered. It must be called as soon as the group is empty,
// because its id can be reused from then on. After the last group, forget waits for the end of the
// shell.
func (k *Watchdog) forget(p *process) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.groups[p] {
		return
	}
	delete(k.groups, p)
	if len(k.groups) == 0 || !k.tryLine("forget", p) { // the next keep starts another shell
		k.stop()
	}
}

// tryLine writes one line to the shell and reports success. A line is so short that the pipe takes all
// of it or nothing.
func (k *Watchdog) tryLine(word string, p *process) bool {
	if k.cmd == nil {
		return false
	}
	line := fmt.Appendf(nil, "%s %d\n", word, p.cmd.Process.Pid)
	n, err := k.writer.try(line)
	return err == nil && n == len(line)
}

// start replaces the shell by a new one that knows all groups.
func (k *Watchdog) start() error {
	k.stop()
	theirs, ours, err := os.Pipe()
	if err != nil {
		return err
	}
	defer theirs.Close()
	cmd := exec.Command(shellPath, "-c", watchdogScript, "junction")
	for p := range k.groups {
		cmd.Args = append(cmd.Args, strconv.Itoa(p.cmd.Process.Pid))
	}
	// other processes of the user can read this environment
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	cmd.Dir, cmd.Stdin, cmd.SysProcAttr = "/", theirs, &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		ours.Close()
		return err
	}
	k.cmd, k.input = cmd, ours
	k.writer.open(ours)
	return nil
}

// stop kills the shell before the end of its input can trigger it, and waits for its end.
func (k *Watchdog) stop() {
	if k.cmd == nil {
		return
	}
	k.cmd.Process.Kill()
	k.cmd.Wait()
	k.input.Close()
	k.cmd, k.input, k.writer = nil, nil, pipeWriter{}
}
