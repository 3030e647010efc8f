//go:build unix

package signins

import (
	"os"
	"syscall"
	"testing"
)

// TestRotateKeepsTheOwner has root rotate the keys of whoever runs the proxy.
func TestRotateKeepsTheOwner(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root may give files away")
	}
	o := mustOffice(t)
	if err := os.Chown(o.keys, 4711, 4712); err != nil {
		t.Fatal(err)
	}
	o.want(o.run("storage", "rotate"), 0, ": 3 values.")
	info, err := os.Stat(o.keys)
	if err != nil {
		t.Fatal(err)
	}
	if s := info.Sys().(*syscall.Stat_t); s.Uid != 4711 || s.Gid != 4712 {
		t.Errorf("the file of keys belongs to %d:%d", s.Uid, s.Gid)
	}
}
