package stdio

import (
	"syscall"
	"testing"
)

// TestOutputPair: to the child its standard output is open as long as we read it, whether it looks
// at that by writing or, as asyncio does, by listening; then it is not.
func TestOutputPair(t *testing.T) {
	ours, theirs, err := outputPair()
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	fd, b := int(theirs.Fd()), make([]byte, 10)
	if n, _, err := syscall.Recvfrom(fd, b, syscall.MSG_DONTWAIT); err != syscall.EAGAIN {
		t.Errorf("the child hears %d bytes, %v; want nothing, and no end", n, err)
	}
	if _, err := theirs.WriteString("a line\n"); err != nil {
		t.Fatal(err)
	}
	if n, err := ours.Read(b); string(b[:n]) != "a line\n" || err != nil {
		t.Errorf("we read %q, %v", b[:n], err)
	}
	ours.Close()
	if n, _, err := syscall.Recvfrom(fd, b, syscall.MSG_DONTWAIT); n != 0 || err != nil {
		t.Errorf("the child hears %d bytes, %v; want the end", n, err)
	}
	if _, err := theirs.WriteString("late\n"); err == nil {
		t.Error("the child could write to a pipe without a reader")
	}
}
