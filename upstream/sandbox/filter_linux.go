package sandbox

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A machine is a processor architecture whose system calls the filter can tell apart.
type machine struct {
	audit uint32 // AUDIT_ARCH_* of its own system calls; those of other ABIs have another value
	x32   bool   // numbers with x32Bit belong to another ABI with the same audit value
	// the numbers of system calls; io_uring's are those of all machines
	socket, socketpair, listen, setsockopt, sendto, sendmsg, sendmmsg, prlimit uint32
}

// machines returns the known machines by GOARCH. All of them are little-endian.
func machines() map[string]machine {
	return map[string]machine{
		"amd64": {audit: unix.AUDIT_ARCH_X86_64, x32: true, socket: 41, socketpair: 53, listen: 50,
			setsockopt: 54, sendto: 44, sendmsg: 46, sendmmsg: 307, prlimit: 302},
		"arm64": {audit: unix.AUDIT_ARCH_AARCH64, socket: 198, socketpair: 199, listen: 201,
			setsockopt: 208, sendto: 206, sendmsg: 211, sendmmsg: 269, prlimit: 261},
	}
}

const (
	x32Bit = 0x40000000

	// system calls of io_uring
	ioUringFirst = 425
	ioUringLast  = 427

	protocolTCP   = unix.IPPROTO_TCP
	protocolUDP   = unix.IPPROTO_UDP
	protocolMPTCP = unix.IPPROTO_MPTCP
	unixProtocol  = unix.AF_UNIX // the same as 0
	routeProtocol = unix.NETLINK_ROUTE
	ownProcess    = 0   // the process id by which a process names itself
	socketKind    = 0xf // the bits of a socket's type without its flags
)

// kind is a kind of sockets.
type kind struct{ family, kind, protocol uint32 }

// permitted returns the kinds of sockets that a command may create. All others are denied, because
// Landlock restricts only TCP and, from abiUnix on, UNIX sockets.
func permitted(anyTCP, unixSockets bool) []kind {
	var list []kind
	for _, family := range []uint32{unix.AF_INET, unix.AF_INET6} {
		list = append(list, kind{family, unix.SOCK_STREAM, 0}, kind{family, unix.SOCK_STREAM, protocolTCP},
			kind{family, unix.SOCK_DGRAM, 0}, kind{family, unix.SOCK_DGRAM, protocolUDP})
		if anyTCP {
			list = append(list, kind{family, unix.SOCK_STREAM, protocolMPTCP})
		}
	}
	// The C library asks for the machine's addresses before it resolves a name.
	list = append(list, kind{unix.AF_NETLINK, unix.SOCK_RAW, routeProtocol},
		kind{unix.AF_NETLINK, unix.SOCK_DGRAM, routeProtocol})
	if unixSockets {
		for _, k := range []uint32{unix.SOCK_STREAM, unix.SOCK_DGRAM, unix.SOCK_SEQPACKET} {
			list = append(list, kind{unix.AF_UNIX, k, 0}, kind{unix.AF_UNIX, k, unixProtocol})
		}
	}
	return list
}

// deniedOptions returns the options of TCP sockets that connect without Landlock, or make a TCP
// socket one of another protocol.
func deniedOptions() []uint32 {
	return []uint32{unix.TCP_REPAIR, unix.TCP_FASTOPEN, unix.TCP_FASTOPEN_CONNECT, unix.TCP_ULP}
}

// A filter is a program of the kernel's (BPF) that decides about each system call. It ends with the
// first instruction that returns.
type filter []unix.SockFilter

// program returns the filter of a command. unixSockets permits creating UNIX sockets, and pairs of
// all kinds; without it, only connected pairs are permitted.
func (m machine) program(anyTCP, unixSockets bool) filter {
	f := filter{
		load(offsetArch), skip(unix.BPF_JEQ, m.audit, 1, 0), answer(unix.SECCOMP_RET_KILL_PROCESS),
		load(offsetNumber),
	}
	if m.x32 {
		f = append(f, skip(unix.BPF_JGE, x32Bit, 0, 1), deny(unix.ENOSYS))
	}
	f = append(f, skip(unix.BPF_JGE, ioUringFirst, 0, 2), skip(unix.BPF_JGT, ioUringLast, 1, 0), deny(unix.ENOSYS))

	f = f.on(m.socket, socketRule(permitted(anyTCP, unixSockets)))
	f = f.on(m.socketpair, pairRule(unixSockets))
	// A limit of processor time or of the size of files would end another process, as a signal does.
	f = f.on(m.prlimit, filter{
		load(argument(0)), skip(unix.BPF_JEQ, ownProcess, 0, 1), allow(), deny(unix.EPERM),
	})
	if !anyTCP {
		f = f.on(m.listen, filter{deny(unix.EACCES)}) // the kernel binds an unbound socket without Landlock
		f = f.on(m.setsockopt, optionRule())
		// Programs take this error for a system without TCP Fast Open, and connect as usual.
		f = f.on(m.sendto, flagsRule(3)).on(m.sendmsg, flagsRule(2)).on(m.sendmmsg, flagsRule(3))
	}
	return append(f, allow())
}

// on adds what happens to one system call. Each way through rule must end with a return.
func (f filter) on(number uint32, rule filter) filter {
	return append(append(f, skip(unix.BPF_JEQ, number, 0, len(rule))), rule...)
}

func socketRule(permitted []kind) (f filter) {
	for _, k := range permitted {
		f = append(f,
			load(argument(0)), skip(unix.BPF_JEQ, k.family, 0, 6),
			load(argument(1)), unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: socketKind},
			skip(unix.BPF_JEQ, k.kind, 0, 3),
			load(argument(2)), skip(unix.BPF_JEQ, k.protocol, 0, 1), allow())
	}
	return append(f, deny(unix.EACCES))
}

// pairRule permits pairs of UNIX sockets. One end of a pair of datagram sockets can connect and send to
// any named datagram socket, such as /dev/log. The other kinds keep their connection. The kernel takes
// SOCK_RAW for SOCK_DGRAM.
func pairRule(datagrams bool) filter {
	f := filter{load(argument(0)), skip(unix.BPF_JEQ, unix.AF_UNIX, 1, 0), deny(unix.EACCES)}
	if datagrams {
		return append(f, allow())
	}
	return append(f, load(argument(1)),
		unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: socketKind},
		skip(unix.BPF_JEQ, unix.SOCK_STREAM, 1, 0), skip(unix.BPF_JEQ, unix.SOCK_SEQPACKET, 0, 1),
		allow(), deny(unix.EACCES))
}

// flagsRule is the rule of a call that sends; i is its argument with the flags.
func flagsRule(i int) filter {
	return filter{load(argument(i)), skip(unix.BPF_JSET, unix.MSG_FASTOPEN, 1, 0), allow(), deny(unix.EOPNOTSUPP)}
}

func optionRule() filter {
	f := filter{load(argument(1)), skip(unix.BPF_JEQ, unix.IPPROTO_TCP, 1, 0), allow(), load(argument(2))}
	for _, option := range deniedOptions() {
		f = append(f, skip(unix.BPF_JEQ, option, 0, 1), deny(unix.EOPNOTSUPP))
	}
	return append(f, allow())
}

// Offsets in the kernel's seccomp_data.
const (
	offsetNumber    = 0
	offsetArch      = 4
	offsetArguments = 16
)

// argument returns the offset of the low half of an argument. The kernel ignores the high half of
// the arguments that the filter reads, because they are of the type int.
func argument(i int) uint32 { return uint32(offsetArguments + 8*i) }

func load(offset uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
}

// skip compares and skips instructions: yes if the comparison holds, otherwise no.
func skip(compare uint16, with uint32, yes, no int) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | compare | unix.BPF_K, K: with, Jt: uint8(yes), Jf: uint8(no)}
}

func answer(action uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: action}
}

func allow() unix.SockFilter { return answer(unix.SECCOMP_RET_ALLOW) }

func deny(errno unix.Errno) unix.SockFilter { return answer(unix.SECCOMP_RET_ERRNO | uint32(errno)) }

// filterProblem returns why this process cannot install a filter, with a solution; "" if it can.
func filterProblem() string {
	if _, ok := machines()[runtime.GOARCH]; !ok {
		return fmt.Sprintf("Junction has a filter of system calls for amd64 and arm64, and this is %s", runtime.GOARCH)
	}
	// With a nil program the kernel fails after it has decided that the call is permitted.
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, 0)
	switch errno {
	case unix.EFAULT:
		return ""
	case unix.EPERM, unix.EACCES:
		return "a seccomp filter forbids another one; allow the system call seccomp"
	}
	return "this kernel has no seccomp filters; use one with CONFIG_SECCOMP_FILTER"
}

// install puts the filter in force for this thread and the programs that it executes. Landlock must
// have set no_new_privs.
func (f filter) install() error {
	if len(f) > math.MaxUint16 {
		return unix.E2BIG
	}
	program := unix.SockFprog{Len: uint16(len(f)), Filter: &f[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return os.NewSyscallError("seccomp", errno)
	}
	return nil
}

// keptCapabilities are those over files, users, processes and low ports. With others, a command of
// root could leave the sandbox: by a device file, a raw socket or a module of the kernel.
const keptCapabilities = 1<<unix.CAP_CHOWN | 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_FOWNER | 1<<unix.CAP_FSETID |
	1<<unix.CAP_KILL | 1<<unix.CAP_SETGID | 1<<unix.CAP_SETUID | 1<<unix.CAP_NET_BIND_SERVICE

// dropCapabilities drops all capabilities of this thread except keptCapabilities. With no_new_privs,
// a program that it executes cannot get them again.
func dropCapabilities() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3} // pid 0 is this thread
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return os.NewSyscallError("capget", err)
	}
	for i, kept := range []uint32{keptCapabilities, 0} {
		data[i].Effective &= kept
		data[i].Permitted &= kept
		data[i].Inheritable &= kept
	}
	return os.NewSyscallError("capset", unix.Capset(&header, &data[0]))
}
