package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"github.com/landlock-lsm/go-landlock/landlock"
	landlocksyscall "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// Kernel asks the kernel what it can enforce.
func Kernel() Support {
	const allow = "a seccomp filter forbids Landlock; " +
		"allow landlock_create_ruleset, landlock_add_rule and landlock_restrict_self"
	abi, err := landlocksyscall.LandlockGetABIVersion()
	switch {
	case err == nil:
		return Support{ABI: abi}
	case errors.Is(err, unix.EOPNOTSUPP):
		return Support{Why: "Landlock is turned off in this kernel; add landlock to its parameter lsm="}
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return Support{Why: allow}
	case errors.Is(err, unix.ENOSYS):
		return Support{Why: "this kernel has no Landlock, or a seccomp filter hides it; use Linux 6.7 or newer"}
	}
	return Support{Why: fmt.Sprintf("the kernel does not offer Landlock (%v); use Linux 6.7 or newer", err)}
}

// orderFD is the socket between the wrapper and who started it, in the wrapper.
const orderFD = 3

// Handover is a confined command between Wrap and the moment at which it runs.
type Handover struct {
	order        order
	ours, theirs *os.File
}

// Wrap changes cmd, which was not started yet, so that it starts the wrapper. The wrapper becomes
// what cmd was, confined by the rules as far as the kernel can enforce them. ExtraFiles of cmd must
// be empty. After cmd.Start the caller calls Started; Close frees what is held in any case.
func Wrap(cmd *exec.Cmd, r Rules, s Support) (*Handover, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	unix.SetNonblock(fds[0], true) // which gives our end deadlines
	h := &Handover{
		order:  order{Rules: r, ABI: s.ABI, Path: cmd.Path, Args: cmd.Args, Env: cmd.Env, Parent: os.Getpid()},
		ours:   os.NewFile(uintptr(fds[0]), "|sandbox"),
		theirs: os.NewFile(uintptr(fds[1]), "|sandbox"),
	}
	if cmd.SysProcAttr != nil {
		h.order.Signal = int(cmd.SysProcAttr.Pdeathsig)
	}
	// The link leads to the program that runs, also if another file is at its path by now. The
	// environment is the command's alone: variables such as LD_PRELOAD must not affect the wrapper.
	cmd.Path, cmd.Args, cmd.Env = "/proc/self/exe", []string{"junction", Word}, []string{}
	cmd.ExtraFiles = []*os.File{h.theirs}
	return h, nil
}

// setUpTime bounds how long the wrapper may take.
const setUpTime = 30 * time.Second

// Started hands the rules over to the wrapper that runs now, and returns when the command has taken
// its place. The error is that of executing the command, or an ErrSetUp; the wrapper must be killed
// then.
func (h *Handover) Started() error {
	h.theirs.Close() // so that the end of the wrapper ends our reading
	h.ours.SetDeadline(time.Now().Add(setUpTime))
	if err := json.NewEncoder(h.ours).Encode(&h.order); err != nil {
		return h.broken(err)
	}
	report, err := io.ReadAll(io.LimitReader(h.ours, 4<<10))
	if err != nil {
		return h.broken(err)
	}
	if len(report) == 0 { // executing the command has closed the socket
		return nil
	}
	var f failure
	if err := json.Unmarshal(report, &f); err != nil {
		return fmt.Errorf("%w: the wrapper answered %.100q", ErrSetUp, report)
	}
	return f.error()
}

func (h *Handover) broken(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("%w within %v; a path of its rules may be on a file system that does not answer",
			ErrSetUp, setUpTime)
	}
	return fmt.Errorf("%w: %w", ErrSetUp, err)
}

// Close closes the sockets.
func (h *Handover) Close() {
	h.theirs.Close()
	h.ours.Close()
}

// Main is the wrapper. It returns, with the exit code of the process, only if the command could not
// be started.
func Main() int {
	unix.CloseOnExec(orderFD)
	socket := os.NewFile(orderFD, "|sandbox")
	var o order
	if err := json.NewDecoder(socket).Decode(&o); err != nil {
		fmt.Fprintf(os.Stderr, "junction: %s is for Junction's own use\n", Word)
		return 2
	}
	f := failure{}
	err := confine(&o.Rules, o.ABI)
	if err == nil {
		err = dieWithParent(&o)
	}
	if err == nil { // a file that we were started with would be open to the command, whatever the rules say
		err = unix.CloseRange(orderFD+1, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
	}
	if err != nil {
		f.Text = err.Error()
	} else if errno, ok := errors.AsType[syscall.Errno](syscall.Exec(o.Path, o.Args, o.Env)); ok {
		f.Errno = int(errno)
	}
	json.NewEncoder(socket).Encode(&f) // if nobody reads it any more, the exit code says enough
	return 126
}

// dieWithParent has the kernel end the command with the parent of the wrapper. The kernel knows
// that by thread, and forgets it when another thread than the first executes the command. The
// caller stays on the thread on which it calls dieWithParent.
func dieWithParent(o *order) error {
	runtime.LockOSThread()
	if o.Signal == 0 {
		return nil
	}
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(o.Signal), 0, 0, 0); err != nil {
		return os.NewSyscallError("prctl", err)
	}
	if os.Getppid() != o.Parent {
		return errors.New("the process that waits for the wrapper has ended")
	}
	return nil
}

// confine puts the rules in force for this process, as far as Landlock of that version can. It
// restricts once: a second ruleset would deny moving files between folders (go-landlock's
// Config.Restrict).
func confine(r *Rules, abi int) error {
	rules := []landlock.Rule{}
	for _, group := range []struct {
		paths            []string
		file, folder     func(...string) landlock.FSRule
		change, optional bool
	}{
		{r.Read, landlock.ROFiles, landlock.RODirs, false, false},
		{r.Default, landlock.ROFiles, landlock.RODirs, false, true},
		{r.Write, landlock.RWFiles, landlock.RWDirs, true, false},
		{r.Devices, landlock.RWFiles, landlock.RWDirs, true, true},
	} {
		for _, path := range group.paths {
			info, err := os.Stat(path)
			if err != nil && group.optional {
				continue
			}
			if err != nil {
				return err
			}
			rule := group.file(path)
			if info.IsDir() {
				rule = group.folder(path)
			}
			if group.change {
				rule = rule.WithIoctlDev().WithResolveUnix()
			}
			if group.change && info.IsDir() {
				rule = rule.WithRefer()
			}
			if group.optional {
				rule = rule.IgnoreIfMissing()
			}
			rules = append(rules, rule)
		}
	}
	c := configs()[min(abi, abiNewest)-abiMove]
	if r.AnyTCP {
		c.HandledAccessNet = 0
	}
	if c.HandledAccessNet != 0 {
		for _, port := range r.TCP {
			rules = append(rules, landlock.ConnectTCP(port))
		}
	}
	return c.Restrict(rules...)
}

// configs are what each version of Landlock from abiMove to abiNewest restricts.
func configs() []landlock.Config {
	return []landlock.Config{
		landlock.V2, landlock.V3, landlock.V4, landlock.V5, landlock.V6, landlock.V7, landlock.V8, landlock.V9,
	}
}
