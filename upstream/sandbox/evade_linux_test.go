package sandbox

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// evade does one deed of the hostile program that goes around Landlock. a is its operand: a port, a
// file, or the numbers of a socket.
func evade(what, a string) error {
	port, _ := strconv.Atoi(a)
	switch what {
	case "fast-open":
		kind, number, _ := strings.Cut(a, ":")
		port, _ = strconv.Atoi(number)
		return fastOpen(kind, port)
	case "mptcp":
		return withSocket(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP, func(fd int) error {
			return unix.Connect(fd, local(port))
		})
	case "listen-unbound": // the kernel chooses a port, without a question to Landlock
		return withSocket(unix.AF_INET, unix.SOCK_STREAM, 0, func(fd int) error { return unix.Listen(fd, 1) })
	case "socket":
		var domain, kind, protocol int
		if _, err := fmt.Sscanf(a, "%d:%d:%d", &domain, &kind, &protocol); err != nil {
			return err
		}
		return withSocket(domain, kind, protocol, func(int) error { return nil })
	case "socketpair":
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			unix.Close(fds[0])
			unix.Close(fds[1])
		}
		return err
	case "pair": // sends by one end of a pair to a named socket
		kind, name, _ := strings.Cut(a, ":")
		number, _ := strconv.Atoi(kind)
		return sendByPair(number, name)
	case "addresses":
		_, err := net.InterfaceAddrs()
		return err
	case "uring":
		var parameters [120]byte // of io_uring_params
		fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&parameters)), 0)
		if errno != 0 {
			return errno
		}
		return unix.Close(int(fd))
	case "limits": // of another process: with those that it has
		pid, _ := strconv.Atoi(a)
		var limit unix.Rlimit
		if err := unix.Prlimit(pid, unix.RLIMIT_CPU, nil, &limit); err != nil {
			return err
		}
		return unix.Prlimit(pid, unix.RLIMIT_CPU, &limit, nil)
	case "device":
		return unix.Mknod(a, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3)))
	}
	return fmt.Errorf("there is no deed %q", what)
}

// sendByPair sends to a named socket by one end of a pair, in each way that there is.
func sendByPair(kind int, name string) error {
	fds, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	to := &unix.SockaddrUnix{Name: name}
	if err = unix.Sendto(fds[0], []byte("x"), 0, to); err == nil {
		err = unix.Connect(fds[1], to)
	}
	unix.Close(fds[1])
	if err != nil && unix.Connect(fds[0], to) == nil { // whose other end is gone
		err = nil
	}
	unix.Close(fds[0])
	return err
}

// withSocket uses a new socket and closes it.
func withSocket(domain, kind, protocol int, use func(fd int) error) error {
	fd, err := unix.Socket(domain, kind|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return use(fd)
}

// local returns an address of this machine.
func local(port int) *unix.SockaddrInet4 {
	return &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}
}

// fastOpen sends to a port without connect.
func fastOpen(kind string, port int) error {
	return withSocket(unix.AF_INET, unix.SOCK_STREAM, 0, func(fd int) error {
		text := []byte("x")
		switch kind {
		case "sendto":
			return unix.Sendto(fd, text, unix.MSG_FASTOPEN, local(port))
		case "sendmsg":
			return unix.Sendmsg(fd, text, nil, local(port), unix.MSG_FASTOPEN)
		case "sendmmsg":
			return sendmmsg(fd, text, port)
		case "option":
			return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_FASTOPEN_CONNECT, 1)
		}
		return fmt.Errorf("there is no %q", kind)
	})
}

func sendmmsg(fd int, text []byte, port int) error {
	to := unix.RawSockaddrInet4{Family: unix.AF_INET, Addr: [4]byte{127, 0, 0, 1}, Port: uint16(port>>8 | port&0xff<<8)}
	part := unix.Iovec{Base: &text[0]}
	part.SetLen(len(text))
	var message struct {
		header unix.Msghdr
		sent   uint32
	}
	message.header = unix.Msghdr{Name: (*byte)(unsafe.Pointer(&to)), Namelen: unix.SizeofSockaddrInet4, Iov: &part}
	message.header.SetIovlen(1)
	_, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&message)), 1,
		unix.MSG_FASTOPEN, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// mustServe returns a port of TCP whose connections are read to their end.
func mustServe(t *testing.T) string {
	t.Helper()
	lc := net.ListenConfig{}
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() { // ends with l
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			io.Copy(io.Discard, c)
			c.Close()
		}
	}()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}

// TestSandboxWaysAroundLandlock tries what Landlock permits, although the rules do not: first
// without a sandbox, where each deed must work, or the test would prove nothing.
func TestSandboxWaysAroundLandlock(t *testing.T) {
	enforced(t, abiTCP)
	denied, dir := mustServe(t), t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	named, err := net.Listen("unix", path("socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer named.Close()
	abstract, err := net.Listen("unix", "@junction-sandbox-test-"+strconv.Itoa(os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	defer abstract.Close()
	datagrams, err := net.ListenPacket("unixgram", path("log"))
	if err != nil {
		t.Fatal(err)
	}
	defer datagrams.Close()
	if err := os.WriteFile(path("foreign"), foreign(), 0o700); err != nil {
		t.Fatal(err)
	}
	rows := []struct {
		deed      string
		want, all string // with no TCP, and with all of TCP and UNIX sockets
		machine   string // "" is every one
		root      bool
	}{
		{"fast-open sendto:" + denied, "ENOTSUP", "ok", "", false},
		{"fast-open sendmsg:" + denied, "ENOTSUP", "ok", "", false},
		{"fast-open sendmmsg:" + denied, "ENOTSUP", "ok", "", false},
		{"fast-open option:" + denied, "ENOTSUP", "ok", "", false},
		{"mptcp " + denied, "EACCES", "ok", "", false},
		{"listen-unbound", "EACCES", "ok", "", false},
		{"uring", "ENOSYS", "ENOSYS", "", false},
		{"run " + path("foreign"), "SIGSYS", "SIGSYS", "amd64", false},
		{socket(unix.AF_ALG, unix.SOCK_SEQPACKET, 0), "EACCES", "EACCES", "", false},
		{socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_SOCK_DIAG), "EACCES", "EACCES", "", false},
		{socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_TCP), "EACCES", "EACCES", "", true},
		{socket(unix.AF_PACKET, unix.SOCK_RAW, 0), "EACCES", "EACCES", "", true},
		{"device " + path("device"), "EPERM", "EPERM", "", true},
		{"limits " + strconv.Itoa(os.Getpid()), "EPERM", "EPERM", "", false},
		{"unix " + path("socket"), "EACCES", "ok", "", false},
		{"unix " + abstract.Addr().String(), "EACCES", "EPERM", "", false},
		{pairTo(unix.SOCK_DGRAM, path("log")), "EACCES", "ok", "", false},
		{pairTo(unix.SOCK_RAW, path("log")), "EACCES", "ok", "", false},
		// what servers need
		{"socketpair", "ok", "ok", "", false},
		{"addresses", "ok", "ok", "", false},
		{"limits 0", "ok", "ok", "", false},
		{socket(unix.AF_INET, unix.SOCK_DGRAM, 0), "ok", "ok", "", false},
		{socket(unix.AF_INET6, unix.SOCK_DGRAM, unix.IPPROTO_UDP), "ok", "ok", "", false},
	}
	var deeds []string
	for _, row := range rows {
		deeds = append(deeds, row.deed)
	}
	// try runs all deeds and compares the results with those that want returns for a row.
	try := func(t *testing.T, r *Rules, s Support, want func(i int) string) {
		t.Helper()
		os.Remove(path("device"))
		for i, got := range run(t, r, s, deeds...) {
			row := rows[i]
			switch {
			case row.machine != "" && row.machine != runtime.GOARCH, row.root && os.Getuid() != 0:
			case r == nil && (got == "ENOSYS" || got == "EPROTONOSUPPORT" || got == "EAFNOSUPPORT"):
				t.Logf("NOT TESTED: this kernel does not know %s: %s", row.deed, got)
			case got != want(i):
				t.Errorf("%s: %s, want %s", row.deed, got, want(i))
			}
		}
	}
	try(t, nil, Support{}, func(int) string { return "ok" })
	try(t, &Rules{Write: []string{dir}}, Support{ABI: min(Kernel().ABI, abiUnix-1), Filter: true},
		func(i int) string { return rows[i].want })
	if Kernel().ABI >= 6 { // from which on abstract sockets are restricted
		try(t, &Rules{Write: []string{dir}, AnyTCP: true, AnyUnix: true}, Kernel(),
			func(i int) string { return rows[i].all })
	}
}

// TestSandboxPairsStayConnected: the pairs that each command may create reach no named socket, even
// without a sandbox.
func TestSandboxPairsStayConnected(t *testing.T) {
	dir := t.TempDir()
	for kind, network := range map[int]string{unix.SOCK_STREAM: "unix", unix.SOCK_SEQPACKET: "unixpacket"} {
		name := filepath.Join(dir, network)
		l, err := net.Listen(network, name)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if got := run(t, nil, Support{}, pairTo(kind, name))[0]; got == "ok" {
			t.Errorf("an end of a pair of the kind %d reaches a named socket", kind)
		}
	}
}

// pairTo is the deed that sends to a named socket by a pair.
func pairTo(kind int, name string) string { return fmt.Sprintf("pair %d:%s", kind, name) }

// socket is the deed that creates a socket.
func socket(family, kind, protocol int) string {
	return fmt.Sprintf("socket %d:%d:%d", family, kind, protocol)
}

// foreign is a program for the i386 ABI of amd64: a static ELF file of 32 bits that exits with 0.
func foreign() []byte {
	code := []byte{
		0xb8, 1, 0, 0, 0, // mov eax, 1 (exit)
		0x31, 0xdb, // xor ebx, ebx
		0xcd, 0x80, // int 0x80
		0xf4, // hlt
	}
	const base, header, program = 0x08048000, 52, 32
	size := uint32(header + program + len(code))
	var f []byte
	put := func(width int, values ...uint32) {
		for _, v := range values {
			for i := range width {
				f = append(f, byte(v>>(8*i)))
			}
		}
	}
	f = append(f, 0x7f, 'E', 'L', 'F', 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	put(2, 2, 3)                                    // an executable, for 386
	put(4, 1, base+header+program, header, 0, 0)    // version, start, program headers, none of sections, flags
	put(2, header, program, 1, 40, 0, 0)            // sizes and numbers of the headers
	put(4, 1, 0, base, base, size, size, 5, 0x1000) // load the whole file, to read and run
	return append(f, code...)
}
