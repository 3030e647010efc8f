//go:build unix

package transport

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
)

// Watchdog ends remaining child processes if Junction dies without cleaning up: after kill -9, a
// second signal, a crash. It is a shell, one for all processes of a Set, in a session of its own,
// and reads which groups there are from a pipe whose other end nobody has but us. However we end,
// the pipe ends too, and what is left then gets what finish would give it.
//
// It is there as long as a group is. Nobody waits for what it does: one that is found to have died,
// or not to read, is killed, and the next child starts another. A child that is started in the very
// moment in which we are killed it may not hear of. Where there is no /bin/sh it keeps nothing.
//
// The zero value keeps nothing yet.
type Watchdog struct {
	mu     sync.Mutex
	groups map[*process]bool
	cmd    *exec.Cmd // nil while there is none
	input  *os.File
	writer pipeWriter
}

// watchdogScript is what the shell runs, with the groups that are there already as arguments.
// Signals that somebody sends to all that we started are not for it. At the end of its input, which
// is that of the children's, too, it gives the groups two seconds (StopGrace), SIGTERM, two more,
// and SIGKILL. One that it finds empty, once a second, it forgets, because the id may then become
// somebody else's.
//
// kill is called in this way because dash, bash and busybox understand no other in common.
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

// keep adds the group of a process that was just started. An error means that nobody ends it when
// we are killed.
func (k *Watchdog) keep(p *process) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.groups == nil {
		k.groups = map[*process]bool{}
	}
	k.groups[p] = true
	if k.told("keep", p) {
		return nil
	}
	return k.start()
}

// forget takes the group out, if it is in. It must be called as soon as nobody is in the group,
// whose id can be given to others from then on. When it was the last one, forget returns after the
// end of the shell.
func (k *Watchdog) forget(p *process) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.groups[p] {
		return
	}
	delete(k.groups, p)
	if len(k.groups) == 0 || !k.told("forget", p) { // and the next keep starts another
		k.stop()
	}
}

// told tells the shell of a group; a line is so short that it is in the pipe as a whole or not at
// all. It reports whether that went well.
func (k *Watchdog) told(word string, p *process) bool {
	if k.cmd == nil {
		return false
	}
	line := fmt.Appendf(nil, "%s %d\n", word, p.cmd.Process.Pid)
	n, err := k.writer.try(line)
	return err == nil && n == len(line)
}

// start starts the shell with all groups, in place of the one that there is.
func (k *Watchdog) start() error {
	k.stop()
	theirs, ours, err := os.Pipe()
	if err != nil {
		return err
	}
	defer theirs.Close()
	cmd := exec.Command("/bin/sh", "-c", watchdogScript, "junction")
	for p := range k.groups {
		cmd.Args = append(cmd.Args, strconv.Itoa(p.cmd.Process.Pid))
	}
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")} // other processes of the user can read its environment
	cmd.Dir, cmd.Stdin, cmd.SysProcAttr = "/", theirs, &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		ours.Close()
		return err
	}
	k.cmd, k.input = cmd, ours
	k.writer.open(ours)
	return nil
}

// stop kills the shell, before the end of its input makes it do anything, and waits for its end,
// which is the kernel's work alone.
func (k *Watchdog) stop() {
	if k.cmd == nil {
		return
	}
	k.cmd.Process.Kill()
	k.cmd.Wait()
	k.input.Close()
	k.cmd, k.input, k.writer = nil, nil, pipeWriter{}
}
