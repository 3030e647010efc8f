package listeners

import (
	"strings"
	"syscall"
	"testing"
)

// TestAddressOfAnotherMachine: the error for an address that this machine does not have says what to
// do, as the error for an address that is taken does.
func TestAddressOfAnotherMachine(t *testing.T) {
	_, err := Listen("192.0.2.1:0", "admin")
	if err == nil || !strings.HasPrefix(err.Error(), "cannot listen on 192.0.2.1:0: ") || !strings.HasSuffix(err.Error(), "; set admin to an address that this machine has") {
		t.Errorf("Listen = %v, want what to do", err)
	}
	if got := hintOfListen(syscall.EACCES, "tls.listen"); !strings.Contains(got, "junction.socket") {
		t.Errorf("a port that is not for everybody: set tls.listen to %s", got)
	}
	if got := hintOfListen(syscall.EACCES, "listen"); got != "a port of 1024 or higher" {
		t.Errorf("a port that is not for everybody: set listen to %s", got)
	}
}
