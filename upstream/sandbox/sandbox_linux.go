package sandbox

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/landlock-lsm/go-landlock/landlock"
	landlocksyscall "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// Kernel returns the restrictions that the running kernel can enforce.
func Kernel() Support {
	s := landlockSupport()
	s.FilterWhy = filterProblem()
	s.Filter = s.FilterWhy == ""
	return s
}

func landlockSupport() Support {
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

// orderFD is the wrapper's end of the socket to the process that started it, and grantedFD the first folder of
// Grant, which the others follow.
const (
	orderFD   = 3
	grantedFD = 4
)

// Handover is a sandboxed command between Wrap and its start.
type Handover struct {
	order        order
	ours, theirs *os.File
}

// Wrap changes cmd, which must not have been started, so that it starts the wrapper. The wrapper
// then executes the original command under the rules, as far as the kernel can enforce them.
// cmd.ExtraFiles must be empty. The caller must call Started after cmd.Start, and Close in any
// case.
func Wrap(cmd *exec.Cmd, r Rules, s Support) (*Handover, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	unix.SetNonblock(fds[0], true) // needed for deadlines on our end
	h := &Handover{
		order:  order{Rules: r, Support: s, Path: cmd.Path, Args: cmd.Args, Env: cmd.Env, Parent: os.Getpid()},
		ours:   os.NewFile(uintptr(fds[0]), "|sandbox"),
		theirs: os.NewFile(uintptr(fds[1]), "|sandbox"),
	}
	if cmd.Dir != "" && r.Writable.Holds(cmd.Dir) != "" { // the wrapper opens it without following links
		h.order.Dir, cmd.Dir = cmd.Dir, ""
	}
	if cmd.SysProcAttr != nil {
		h.order.Signal = int(cmd.SysProcAttr.Pdeathsig)
	}
	// The link leads to the running program, even if its file was replaced. The wrapper has an
	// empty environment, because the command's variables, such as LD_PRELOAD, must not affect it.
	cmd.Path, cmd.Args, cmd.Env = "/proc/self/exe", []string{"junction", Word}, []string{}
	cmd.ExtraFiles = []*os.File{h.theirs}
	return h, nil
}

// Grant lets the command use open folders, whatever their paths lead to later. Call it between Wrap and
// the start of cmd, until which they must stay open.
func (h *Handover) Grant(cmd *exec.Cmd, to Granted, dirs ...*os.File) {
	to.Folders = len(dirs)
	h.order.Granted = &to
	if cmd.ExtraFiles = append(cmd.ExtraFiles, dirs...); to.Start {
		cmd.Dir, h.order.Dir = "", ""
	}
}

// setUpTime limits the run time of the wrapper.
const setUpTime = 30 * time.Second

// Started sends the rules to the running wrapper and waits until the wrapper has executed the
// command. The error is about the start of the command, or ErrSetUp; the caller must then kill the
// wrapper.
func (h *Handover) Started() error {
	h.theirs.Close() // so that ReadAll returns when the wrapper ends
	h.ours.SetDeadline(time.Now().Add(setUpTime))
	text, err := json.Marshal(&h.order)
	if err != nil {
		return h.broken(err)
	}
	// Nothing may follow the order: the wrapper reads up to its last brace, and what it leaves in the socket
	// would reset the connection.
	if _, err := h.ours.Write(text); err != nil {
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

// Main runs the wrapper. It returns only if the command could not be started; the result is the
// exit code of the process.
func Main() int {
	unix.CloseOnExec(orderFD)
	socket := os.NewFile(orderFD, "|sandbox")
	var o order
	if err := json.NewDecoder(socket).Decode(&o); err != nil {
		fmt.Fprintf(os.Stderr, "junction: %s is for Junction's own use\n", Word)
		return 2
	}
	f := failure{}
	runtime.LockOSThread() // the kernel keeps some of the settings per thread
	err := changeDir(&o)
	if err == nil {
		err = confine(&o)
	}
	if err == nil {
		err = dieWithParent(&o)
	}
	if err == nil {
		err = dropCapabilities()
	}
	if err == nil && o.Support.Filter {
		err = machines()[runtime.GOARCH].program(o.Rules.AnyTCP, o.Support.permitsUnix(&o.Rules)).install()
	}
	if err == nil { // the command could use inherited open files despite the rules
		err = unix.CloseRange(orderFD+1, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
	}
	if err != nil {
		f.Text = err.Error()
	} else if errno, ok := errors.AsType[syscall.Errno](syscall.Exec(o.Path, o.Args, o.Env)); ok {
		f.Errno = int(errno)
	}
	json.NewEncoder(socket).Encode(&f) // if this fails, the exit code is enough
	return 126
}

// dieWithParent makes the kernel end the command with the parent of the wrapper. The kernel stores
// the setting per thread and drops it if another thread executes the command, so the caller must
// stay on its thread.
func dieWithParent(o *order) error {
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

// confine applies the rules to this process, as far as this version of Landlock can. It restricts
// only once: a second ruleset would deny moving files between folders (go-landlock's
// Config.Restrict).
func confine(o *order) error {
	r, abi := &o.Rules, o.Support.ABI
	rules := []landlock.Rule{}
	for _, group := range []struct {
		paths            []string
		change, optional bool
	}{
		{r.Read, false, false},
		{r.Default, false, true},
		{r.Write, true, false},
		{r.Devices, true, true},
	} {
		for _, path := range group.paths {
			fd, folder, err := r.Writable.open(path)
			if err != nil && group.optional {
				continue
			}
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			rules = append(rules, ruleOf(fd, folder, group.change))
		}
	}
	if o.Granted != nil {
		for n := range o.Granted.Folders {
			rules = append(rules, ruleOf(grantedFD+n, true, o.Granted.Write))
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

// ruleOf returns the rule for an open file or folder.
func ruleOf(fd int, folder, change bool) landlock.Rule {
	open := fmt.Sprintf("/proc/self/fd/%d", fd)
	switch {
	case folder && change:
		return landlock.RWDirs(open).WithIoctlDev().WithResolveUnix().WithRefer()
	case folder:
		return landlock.RODirs(open)
	case change:
		return landlock.RWFiles(open).WithIoctlDev().WithResolveUnix()
	}
	return landlock.ROFiles(open)
}

// changeDir enters the working directory, if it is granted, or below a writable path.
func changeDir(o *order) error {
	if o.Granted != nil && o.Granted.Start {
		return os.NewSyscallError("fchdir", unix.Fchdir(grantedFD))
	}
	if o.Dir == "" {
		return nil
	}
	fd, folder, err := o.Rules.Writable.open(o.Dir)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if !folder {
		return fmt.Errorf("dir %s is no folder", o.Dir)
	}
	return os.NewSyscallError("fchdir", unix.Fchdir(fd))
}

// open opens a path for rules (O_PATH), and reports whether it is a folder. Below a writable path it
// follows no link.
func (w Writable) open(path string) (fd int, folder bool, err error) {
	at, err := w.place(path)
	if err != nil {
		return -1, false, err
	}
	begin := path
	if at.root != "" {
		begin = at.root
	}
	if fd, err = unix.Open(begin, unix.O_PATH|unix.O_CLOEXEC, 0); err == nil && at.rest != "" {
		root := fd
		fd, err = openBelow(root, at.rest)
		unix.Close(root)
	}
	var info unix.Stat_t
	if err == nil {
		if err = unix.Fstat(fd, &info); err != nil {
			unix.Close(fd)
		}
	}
	switch {
	case errors.Is(err, unix.ELOOP) && at.rest != "":
		return -1, false, fmt.Errorf("%s is a link or leads through one, below %s, which confined commands may "+
			"change; replace the link by its target, or name the target", path, at.root)
	case err != nil:
		return -1, false, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return fd, info.Mode&unix.S_IFMT == unix.S_IFDIR, nil
}

// openBelow opens a path below a folder, without following links.
func openBelow(folder int, path string) (int, error) {
	fd, err := unix.Openat2(folder, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS})
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) { // a filter of a container forbids it
		return walkBelow(folder, path)
	}
	return fd, err
}

// walkBelow is openBelow without openat2. The path has no dot segments.
func walkBelow(folder int, path string) (fd int, err error) {
	fd = -1
	for name := range strings.SplitSeq(path, "/") {
		next, err := unix.Openat(folder, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if fd >= 0 {
			unix.Close(fd)
		}
		if err != nil {
			return -1, err
		}
		var info unix.Stat_t
		if err := unix.Fstat(next, &info); err != nil || info.Mode&unix.S_IFMT == unix.S_IFLNK {
			unix.Close(next)
			return -1, cmp.Or(err, error(unix.ELOOP))
		}
		fd, folder = next, next
	}
	return fd, nil
}

// configs returns the restrictions of each version of Landlock from abiMove to abiNewest.
func configs() []landlock.Config {
	return []landlock.Config{
		landlock.V2, landlock.V3, landlock.V4, landlock.V5, landlock.V6, landlock.V7, landlock.V8, landlock.V9,
	}
}
