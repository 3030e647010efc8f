package files

import (
	"bufio"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestNetworkFoldersAreKnown: the last mount with the longest path decides, whatever characters it has.
func TestNetworkFoldersAreKnown(t *testing.T) {
	const mounts = `22 1 259:1 / / rw,relatime - ext4 /dev/root rw
30 22 0:40 / /home rw,nosuid shared:7 - nfs4 server:/home rw,vers=4.2
31 30 0:41 / /home/ann/local\040disk rw - ext4 /dev/sdb rw
32 22 0:42 / /mnt rw - ext4 /dev/sdc rw
33 22 0:43 / /mnt rw - fuse.sshfs host:/ rw
34 22 0:44 / /encrypted rw - fuse.gocryptfs x rw
broken line
`
	for dir, want := range map[string]string{"/": "", "/var/lib": "", "/home": "nfs4", "/home/ann/.local": "nfs4",
		"/home/ann/local disk/x": "", "/homes": "", "/mnt/a": "fuse.sshfs", "/encrypted": ""} {
		if got := networkIn(bufio.NewScanner(strings.NewReader(mounts)), dir); got != want {
			t.Errorf("%s is on %q, want %q", dir, got, want)
		}
	}
	for _, test := range []struct{ within, dir, want string }{
		{"/", "/var/lib", ""}, {"/", "/home/ann", "/home"}, {"/home/ann", "/home/ann/src", ""},
		{"/home", "/home/ann/local disk/x", ""}, {"/mnt", "/mnt/a", ""}, {"/", "/mnt/a", "/mnt"},
		{"/", "/net/host/x", "/net"}, {"/", "/netz", ""}, {"/", "/encrypted", ""},
	} {
		text := mounts + "35 22 0:45 / /net rw - autofs -hosts rw\n"
		if got := crossingIn([]byte(text), test.within, test.dir); got != test.want {
			t.Errorf("from %s to %s: %q, want %q", test.within, test.dir, got, test.want)
		}
	}
	mounted, link := t.TempDir(), filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(mounted, link); err != nil {
		t.Fatal(err)
	}
	if got := existing(filepath.Join(link, "not", "there")); got != mounted {
		t.Errorf("a folder behind a link to %s counts as in %s", mounted, got)
	}
	if got := Network(t.TempDir() + "/not/there"); got != "" {
		t.Errorf("a temporary folder is on %q", got)
	}
}
