package sandbox

import (
	"fmt"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// call is a system call as the filter sees it.
type call struct {
	number, arch uint32
	arguments    [6]uint64
}

// mustDecide runs a filter as the kernel does. It fails for instructions that lead out of it.
func (f filter) mustDecide(t *testing.T, c call) uint32 {
	t.Helper()
	a := uint32(0)
	for i := 0; i < len(f); i++ {
		in, jump := f[i], func(yes bool) int {
			if yes {
				return int(f[i].Jt)
			}
			return int(f[i].Jf)
		}
		switch in.Code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			switch k := in.K; {
			case k == offsetNumber:
				a = c.number
			case k == offsetArch:
				a = c.arch
			case k >= offsetArguments && k < 64 && k%8 == 0:
				a = uint32(c.arguments[(k-offsetArguments)/8])
			default:
				t.Fatalf("instruction %d loads from %d", i, k)
			}
		case unix.BPF_ALU | unix.BPF_AND | unix.BPF_K:
			a &= in.K
		case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K:
			i += jump(a == in.K)
		case unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K:
			i += jump(a >= in.K)
		case unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K:
			i += jump(a > in.K)
		case unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K:
			i += jump(a&in.K != 0)
		case unix.BPF_RET | unix.BPF_K:
			return in.K
		default:
			t.Fatalf("instruction %d has the code %#x", i, in.Code)
		}
	}
	t.Fatal("the filter has an end without an answer")
	return 0
}

// TestSandboxFilterOfEachMachine has an interpreter decide, so that the filters of all machines
// are tested on each.
func TestSandboxFilterOfEachMachine(t *testing.T) {
	const high = 0xffffffff << 32 // which the kernel ignores
	const (
		yes     = uint32(unix.SECCOMP_RET_ALLOW)
		kill    = uint32(unix.SECCOMP_RET_KILL_PROCESS)
		unknown = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
		denied  = unix.SECCOMP_RET_ERRNO | uint32(unix.EACCES)
		refused = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
		without = unix.SECCOMP_RET_ERRNO | uint32(unix.EOPNOTSUPP)
	)
	foreign := map[string][]uint32{
		"amd64": {unix.AUDIT_ARCH_I386, unix.AUDIT_ARCH_AARCH64, 0},
		"arm64": {unix.AUDIT_ARCH_ARM, unix.AUDIT_ARCH_X86_64, 0},
	}
	for name, m := range machines() {
		t.Run(name, func(t *testing.T) {
			socket := func(family, kind, protocol uint64) call {
				return call{m.socket, m.audit, [6]uint64{family, kind, protocol}}
			}
			pair := func(family, kind uint64) call {
				return call{m.socketpair, m.audit, [6]uint64{family, kind}}
			}
			option := func(level, option uint64) call {
				return call{m.setsockopt, m.audit, [6]uint64{3, level, option}}
			}
			at := func(number uint32, i int, flags uint64) call {
				c := call{number: number, arch: m.audit}
				c.arguments[i] = flags
				return c
			}
			for _, row := range []struct {
				what          string
				call          call
				strict, loose uint32 // without TCP and UNIX sockets, and with all of both
			}{
				{"any other call", call{number: 1, arch: m.audit}, yes, yes},
				{"the call before io_uring's", call{number: 424, arch: m.audit}, yes, yes},
				{"io_uring_setup", call{number: 425, arch: m.audit}, unknown, unknown},
				{"io_uring_enter", call{number: 426, arch: m.audit}, unknown, unknown},
				{"io_uring_register", call{number: 427, arch: m.audit}, unknown, unknown},
				{"the call after io_uring's", call{number: 428, arch: m.audit}, yes, yes},
				{"TCP", socket(unix.AF_INET, unix.SOCK_STREAM, 0), yes, yes},
				{"TCP by name, with flags", socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 6), yes, yes},
				{"UDP", socket(unix.AF_INET, unix.SOCK_DGRAM, 17), yes, yes},
				{"MPTCP", socket(unix.AF_INET, unix.SOCK_STREAM, 262), denied, yes},
				{"MPTCP with high bits", socket(unix.AF_INET|high, unix.SOCK_STREAM|high, 262|high), denied, yes},
				{"SMC", socket(43, unix.SOCK_STREAM, 0), denied, denied},
				{"SMC as a protocol", socket(unix.AF_INET, unix.SOCK_STREAM, 256), denied, denied},
				{"SCTP", socket(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP), denied, denied},
				{"SCTP packets", socket(unix.AF_INET6, unix.SOCK_SEQPACKET, unix.IPPROTO_SCTP), denied, denied},
				{"DCCP", socket(unix.AF_INET, unix.SOCK_DCCP, unix.IPPROTO_DCCP), denied, denied},
				{"UDP-Lite", socket(unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_UDPLITE), denied, denied},
				{"a raw socket", socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_TCP), denied, denied},
				{"VSOCK", socket(unix.AF_VSOCK, unix.SOCK_STREAM, 0), denied, denied},
				{"TIPC", socket(unix.AF_TIPC, unix.SOCK_STREAM, 0), denied, denied},
				{"a packet socket", socket(unix.AF_PACKET, unix.SOCK_DGRAM, 0), denied, denied},
				{"routes", socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE), yes, yes},
				{"netfilter", socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER), denied, denied},
				{"a UNIX socket", socket(unix.AF_UNIX, unix.SOCK_STREAM, 0), denied, yes},
				{"a UNIX datagram", socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 1), denied, yes},
				{"a raw UNIX socket", socket(unix.AF_UNIX, unix.SOCK_RAW, 0), denied, denied},
				{"a pair", pair(unix.AF_UNIX, unix.SOCK_STREAM), yes, yes},
				{"a pair with flags", pair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK|high), yes, yes},
				{"a pair of packets", pair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC), yes, yes},
				{"a pair of datagrams", pair(unix.AF_UNIX, unix.SOCK_DGRAM), denied, yes},
				{"a pair of datagrams with flags", pair(unix.AF_UNIX|high, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|high), denied, yes},
				{"a raw pair, which is one of datagrams", pair(unix.AF_UNIX, unix.SOCK_RAW), denied, yes},
				{"a pair of TIPC", pair(unix.AF_TIPC, unix.SOCK_STREAM), denied, denied},
				{"limits of its own", at(m.prlimit, 0, 0), yes, yes},
				{"limits of another process", at(m.prlimit, 0, 4711), refused, refused},
				{"listen", call{m.listen, m.audit, [6]uint64{3, 1}}, denied, yes},
				{"no delay", option(unix.IPPROTO_TCP, unix.TCP_NODELAY), yes, yes},
				{"the same number at another level", option(unix.SOL_SOCKET, unix.TCP_FASTOPEN_CONNECT), yes, yes},
				{"fast open of a listener", option(unix.IPPROTO_TCP, 23), without, yes},
				{"fast open of connect", option(unix.IPPROTO_TCP|high, 30|high), without, yes},
				{"another protocol above TCP", option(unix.IPPROTO_TCP, 31), without, yes},
				{"repair", option(unix.IPPROTO_TCP, 19), without, yes},
				{"sendto", at(m.sendto, 3, unix.MSG_NOSIGNAL), yes, yes},
				{"sendto with fast open", at(m.sendto, 3, 0x20000000), without, yes},
				{"sendmsg", at(m.sendmsg, 2, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT), yes, yes},
				{"sendmsg with fast open", at(m.sendmsg, 2, 0x20000000|unix.MSG_NOSIGNAL|high), without, yes},
				{"sendmmsg", at(m.sendmmsg, 2, 0x20000000), yes, yes}, // the number of messages
				{"sendmmsg with fast open", at(m.sendmmsg, 3, 0x20000000), without, yes},
			} {
				if got := m.program(false, false).mustDecide(t, row.call); got != row.strict {
					t.Errorf("%s: the strict filter answers %#x, want %#x", row.what, got, row.strict)
				}
				if got := m.program(true, true).mustDecide(t, row.call); got != row.loose {
					t.Errorf("%s: the loose filter answers %#x, want %#x", row.what, got, row.loose)
				}
			}
			for _, arch := range foreign[name] {
				for _, number := range []uint32{0, m.socket, 425} {
					if got := m.program(true, true).mustDecide(t, call{number: number, arch: arch}); got != kill {
						t.Errorf("call %d of the ABI %#x: %#x, want %#x", number, arch, got, kill)
					}
				}
			}
			got := m.program(true, true).mustDecide(t, call{number: m.socket | x32Bit, arch: m.audit})
			if m.x32 && got != unknown {
				t.Errorf("a call of x32: %#x, want %#x", got, unknown)
			}
		})
	}
}

// TestSandboxNumbersOfThisMachine compares the numbers of the filter with those of the system.
func TestSandboxNumbersOfThisMachine(t *testing.T) {
	m, ok := machines()[runtime.GOARCH]
	if !ok {
		t.Skip("NOT TESTED: there is no filter for this machine")
	}
	got := []any{m.socket, m.socketpair, m.listen, m.setsockopt, m.sendto, m.sendmsg, m.sendmmsg, m.prlimit,
		ioUringFirst, ioUringLast}
	want := []any{unix.SYS_SOCKET, unix.SYS_SOCKETPAIR, unix.SYS_LISTEN, unix.SYS_SETSOCKOPT, unix.SYS_SENDTO,
		unix.SYS_SENDMSG, unix.SYS_SENDMMSG, unix.SYS_PRLIMIT64, unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_REGISTER}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the numbers are %v, want %v", got, want)
	}
}
