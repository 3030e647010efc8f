package files

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"strings"
)

// networks are the types of file systems that several machines may share.
var networks = map[string]bool{"nfs": true, "nfs4": true, "cifs": true, "smb3": true, "smbfs": true, "9p": true,
	"afs": true, "ceph": true, "lustre": true, "fuse.sshfs": true, "fuse.rclone": true, "fuse.s3fs": true,
	"fuse.gcsfuse": true, "fuse.glusterfs": true, "fuse.ceph": true, "davfs": true, "fuse.davfs2": true}

// Network returns the type of the file system of a folder, if it is one that other machines may use too;
// otherwise "". The folder need not exist.
func Network(dir string) string {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return ""
	}
	defer f.Close()
	return networkIn(bufio.NewScanner(f), existing(dir))
}

// existing returns the folder that exists and will contain dir, without symbolic links.
func existing(dir string) string {
	for {
		real, err := filepath.EvalSymlinks(dir)
		if err == nil {
			return real
		}
		up := filepath.Dir(dir)
		if up == dir {
			return dir
		}
		dir = up
	}
}

// unescaped are the characters that mountinfo writes as octal numbers.
var unescaped = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// networkIn is Network for a list of mounts (proc_pid_mountinfo(5)). The last mount of the longest path
// that contains dir counts.
func networkIn(mounts *bufio.Scanner, dir string) string {
	if _, kind := mountIn(mounts, dir); networks[kind] {
		return kind
	}
	return ""
}

// mountIn returns the mount point that contains dir, and the type of its file system.
func mountIn(mounts *bufio.Scanner, dir string) (best, kind string) {
	for mounts.Scan() {
		before, after, ok := strings.Cut(mounts.Text(), " - ")
		fields, types := strings.Fields(before), strings.Fields(after)
		if !ok || len(fields) < 5 || len(types) == 0 {
			continue
		}
		point := unescaped.Replace(fields[4])
		inside := point == "/" || dir == point || strings.HasPrefix(dir, point+"/")
		if inside && len(point) >= len(best) {
			best, kind = point, types[0]
		}
	}
	return best, kind
}

// Crossing returns the mount point of a file system that other machines may use too, or that is mounted when
// it is touched, if dir is on it and within is not; otherwise "". It compares texts and touches neither.
func Crossing(within, dir string) string {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return ""
	}
	return crossingIn(text, within, dir)
}

func crossingIn(mounts []byte, within, dir string) string {
	list := func() *bufio.Scanner { return bufio.NewScanner(bytes.NewReader(mounts)) }
	point, kind := mountIn(list(), dir)
	if !networks[kind] && kind != "autofs" {
		return ""
	}
	if outer, _ := mountIn(list(), within); outer == point {
		return ""
	}
	return point
}
