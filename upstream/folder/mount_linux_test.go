package folder

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"junction/integration/harness/needs"
)

// mountsEnv tells TestHelperMounts in which folder it mounts.
const mountsEnv = "JUNCTION_TEST_MOUNTS"

// TestGuardKeepsItsOwnFilesBehindMounts mounts folders of Junction below a permitted folder, in a process with
// mounts of its own. A disk there is permitted.
func TestGuardKeepsItsOwnFilesBehindMounts(t *testing.T) {
	needs.Mounts.Require(t)
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestHelperMounts$", "-test.v")
	cmd.Env = append(os.Environ(), mountsEnv+"="+mustFolder(t, t.TempDir()))
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestHelperMounts") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestHelperMounts is the other process.
func TestHelperMounts(t *testing.T) {
	dir := os.Getenv(mountsEnv)
	if dir == "" {
		t.Skip("it runs for another test")
	}
	src := mustFolder(t, dir, "src")
	state := mustFolder(t, dir, "state", "junction")
	mustFolder(t, state, "sandbox", "a")
	shop := mustFolder(t, dir, "shop")
	must(t, os.WriteFile(filepath.Join(shop, "junction.yaml"), nil, 0o600))
	home := mustFolder(t, dir, "home")
	g := New(Rules{Within: []string{src}, Homes: []string{home}, Own: []Own{{What: "the keys", Path: state},
		{What: "the configuration file", Path: filepath.Join(shop, "junction.yaml")}}})
	for what, from := range map[string]string{"disk": "", "keys": state, "around": filepath.Dir(state), "shop": shop, "home": home} {
		at := mustFolder(t, src, what)
		if from == "" {
			must(t, unix.Mount("tmpfs", at, "tmpfs", 0, ""))
			continue
		}
		must(t, unix.Mount(from, at, "", unix.MS_BIND, ""))
	}
	disk := mustAdmit(t, g, filepath.Join(src, "disk"))
	mustAdmit(t, g, mustFolder(t, src, "disk", "a"))
	for below, why := range map[string]string{"keys": "it is in the keys", "keys/sandbox/a": "it is in the keys",
		"around": "it contains the keys", "around/junction/sandbox": "it is in the keys",
		"shop": "it contains the configuration file", "home": "it is a home folder"} {
		mustRefuse(t, g, filepath.Join(src, below), why)
	}
	must(t, unix.Unmount(filepath.Join(src, "disk"), 0))
	if below := mustAdmit(t, g, filepath.Join(src, "disk")); below == disk {
		t.Error("the folder below a disk that was taken away is the same place")
	}
}

// TestGuardRefusesWhatItsUserMayNotRead names folders that the user of Junction may not enter or read. With
// root, another user opens them.
func TestGuardRefusesWhatItsUserMayNotRead(t *testing.T) {
	dir := mustFolder(t, t.TempDir())
	must(t, os.Chmod(filepath.Dir(dir), 0o755))
	must(t, os.Chmod(dir, 0o755))
	modes := map[string]os.FileMode{"none": 0, "enter": 0o111, "read": 0o444, "both": 0o555}
	for name, mode := range modes {
		must(t, os.MkdirAll(filepath.Join(dir, name, "in"), 0o755))
		must(t, os.Chmod(filepath.Join(dir, name, "in"), 0o755))
		must(t, os.Chmod(filepath.Join(dir, name), mode))
		t.Cleanup(func() { _ = os.Chmod(filepath.Join(dir, name), 0o700) })
	}
	g := New(Rules{Within: []string{dir}})
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // the thread ends with the goroutine
		if os.Getuid() == 0 {
			if err := unix.Setfsuid(65534); err != nil {
				t.Error(err)
			}
		}
		for name := range modes {
			path := filepath.Join(dir, name)
			if name == "both" {
				mustAdmit(t, g, path)
			} else {
				mustRefuse(t, g, path, "the user of Junction may not open "+path)
			}
			if in := filepath.Join(path, "in"); name == "both" || name == "enter" {
				mustAdmit(t, g, in)
			} else {
				mustRefuse(t, g, in, "the user of Junction may not open "+in)
			}
		}
	}()
	<-done
}

// BenchmarkAdmit is the cost of a call with a folder: five parts of a path, and 30 files of Junction.
func BenchmarkAdmit(b *testing.B) {
	dir, err := filepath.EvalSymlinks(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	shop := filepath.Join(dir, "src", "shop")
	if err := os.MkdirAll(shop, 0o700); err != nil {
		b.Fatal(err)
	}
	r := Rules{Within: []string{dir}, Homes: []string{"/root"}}
	for i := range 30 {
		r.Own = append(r.Own, Own{What: "a file", Path: filepath.Join(dir, "state", "junction", string(rune('a'+i)))})
	}
	g := New(r)
	for b.Loop() {
		if _, err := g.Admit(b.Context(), "local", shop); err != nil {
			b.Fatal(err)
		}
	}
}
