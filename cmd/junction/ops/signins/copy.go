package signins

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"junction/cmd/junction/base/config"
	"junction/cmd/junction/ops/admin"
	"junction/upstream/shell"
)

// copied is how to back up a Junction without a storage: by a copy of its files.
type copied struct {
	Backup  string `json:"backup"`          // command lines
	Restore string `json:"restore"`         // leaves out the audit
	Audit   string `json:"audit,omitempty"` // in the archive; "" if there is none
	// Warning is why files may be missing; "" if the running Junction has named them.
	Warning string `json:"warning,omitempty"`
	// Certificate are the files of tls, which are not in the archive: an older certificate must not replace the
	// present one.
	Certificate []string `json:"certificate,omitempty"`
}

// copyOfFiles returns how to copy what a Junction without a storage needs: the file, with the hashes of its keys
// and its policies, the secrets and variables beside it, pins, the audit, the key of sessions, and the certificates
// that Junction has ordered. ok is false for another command than a backup, for a Junction with a storage, and for a
// file with mistakes.
//
// Folders that a restore has to make are for their owner only, as those that Junction makes. The copy leaves out the
// file api-keys: an older one would make Junction forget the keys that were revoked since.
func copyOfFiles(ctx context.Context, what, file string) (c copied, ok bool) {
	if what != backingUp || file == "" {
		return c, false
	}
	own, err := loadConfig(what, file)
	if err != nil || own.Stores() {
		return c, false
	}
	list := []string{file, file + config.EnvironmentEnd, filepath.Join(filepath.Dir(file), "secrets")}
	if r := admin.Serving(ctx, file); r != nil && len(r.Keeps) > 0 {
		list = append(list, r.Keeps...) // it may run with another state folder, or start in another folder
	} else {
		key := own.Sessions.KeyFile
		if state, err := config.StateDir(os.LookupEnv); key == "" && err == nil {
			key = filepath.Join(state, "junction", "key")
			c.Warning = "No Junction that serves the file answers. If it runs with another XDG_STATE_HOME than this " +
				"shell, or in another folder, files are missing: run the command again while it runs."
		}
		list = append(list, own.Pins, own.Audit.File, key, config.OrderedDir(own, os.LookupEnv))
	}
	if own.TLS.CertFile != "" {
		c.Certificate = []string{own.TLS.CertFile, own.TLS.KeyFile}
	}
	var paths []string
	for _, name := range list {
		full, err := filepath.Abs(name)
		if name == "" || err != nil {
			continue
		}
		if _, err := os.Stat(full); !errors.Is(err, fs.ErrNotExist) && !slices.Contains(paths, full) {
			paths = append(paths, full)
		}
	}
	const archive = "junction.tar.gz"
	pack, unpack := []string{"tar", "-czf", archive}, []string{"tar", "-xpzf", archive}
	if filepath.VolumeName(paths[0]) == "" {
		pack, unpack = append(pack, "-C", "/"), append(unpack, "-C", "/")
		for i := range paths {
			paths[i] = strings.TrimPrefix(paths[i], "/")
		}
	}
	// The archive has the key of sessions, and what secrets the files have.
	c.Backup = private(append(pack, paths...))
	for _, name := range paths {
		if own.Audit.File != "" && filepath.Base(name) == filepath.Base(own.Audit.File) {
			c.Audit = name
			unpack = append(unpack, "--exclude="+name) // what has happened since the backup is only in the present one
		}
	}
	c.Restore = private(unpack)
	return c, true
}

// private returns a command line whose new files and folders are for their owner only.
func private(command []string) string { return "(umask 077; " + shell.Join(command...) + ")" }

// errCopied is the result of a backup that the command does not make itself.
var errCopied = errors.New("no backup was made: run the command line above, which copies the files")

// text returns the two command lines for people.
func (c copied) text() string {
	text := "Nothing was written: this Junction has no storage, and a backup is a copy of its files. Run as a " +
		"user who can read them:\n  " + c.Backup +
		"\nWhat your servers keep, such as the files of a memory, is not in it.\n" +
		"To restore, stop Junction, run this where the archive is, and start Junction:\n  " + c.Restore +
		"\nThen run junction check: it names keys that were revoked since the backup.\n"
	if c.Audit != "" {
		text += "The audit of now stays. To restore that of the archive, move the present one aside first, and leave " +
			"out --exclude.\n"
	}
	if len(c.Certificate) > 0 {
		text += "The files of tls are not in it, because a restored certificate may have expired; keep copies of " +
			"them where they are made: " + strings.Join(c.Certificate, ", ") + "\n"
	}
	if c.Warning != "" {
		text += c.Warning + "\n"
	}
	return text
}
