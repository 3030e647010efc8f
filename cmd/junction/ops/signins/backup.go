package signins

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"junction/auth/store"
	"junction/cmd/junction/base/cli"
	"junction/cmd/junction/base/config"
	"junction/upstream/prose"
	"junction/upstream/shell"
)

// This file has the commands that copy the storage of sign-ins, and check it.

// kept is the storage of a configuration file, which need not exist yet.
type kept struct {
	store.Config
	storage config.Storage
	keyFile string // "" if the keys are in the environment
	ordered string // the folder of the certificates that Junction orders; "" if it orders none
}

// Commands with a rule of their own: restoring needs the keys, but no storage, and backingUp names the files
// of a Junction without a storage.
const (
	restoring = "storage restore"
	backingUp = "storage backup"
)

// keptStorage returns the storage of a configuration file with its master keys. what is the
// command, for messages.
func keptStorage(what, file string) (k kept, err error) {
	c, err := storingConfig(what, file)
	if err != nil {
		return k, err
	}
	k.storage, k.Driver, k.ordered = c.Storage, c.Storage.Driver, config.OrderedDir(c, os.LookupEnv)
	if k.DSN, err = c.Storage.Place(os.LookupEnv); err != nil {
		return k, err
	}
	if k.Keys, k.keyFile, err = existingRing(c.Storage); err != nil && what != restoring {
		if _, none := existingPlace(c.Storage); none != nil {
			err = none // before the first start there are neither keys nor a storage
		}
	}
	return k, err
}

// audit stores an event of the operator, if the storage has the schema of this program.
func (k *kept) audit(ctx context.Context, what, detail string, r store.Report) error {
	if r.Schema != r.Latest {
		return nil // the next start of the proxy migrates it
	}
	s, err := OpenStore(ctx, k.storage, k.DSN, k.Keys, true)
	if err != nil {
		return err
	}
	e := store.Event{Event: what, Detail: store.DetailJSON(map[string]string{"detail": detail + ", by the operator"})}
	return errors.Join(s.Audit(ctx, e), s.Close())
}

// keptCommand returns a command that works on the storage and takes n arguments. run returns the
// output of --json, and the text that is printed without --json.
func keptCommand(what, use, short, long, example string, n int, stdout io.Writer, file *string,
	run func(ctx context.Context, k kept, args []string) (v any, text string, err error)) *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{Use: use, Short: short, Long: long, Example: example,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == n {
				return nil
			}
			if n == 0 {
				return cli.Usagef("%s takes no arguments, and got %q", what, args[0])
			}
			return cli.Usagef("%s needs one FILE", what)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), 10*StorageLimit)
			defer cancel()
			k, err := keptStorage(what, *file)
			var v any
			var text string
			if copied, ok := copyOfFiles(ctx, what, *file); ok {
				v, text, err = copied, copied.text(), errCopied
			} else if err == nil {
				v, text, err = run(ctx, k, args)
			}
			if v != nil && asJSON {
				return errors.Join(cli.PrintValue(stdout, v), err)
			}
			if _, failed := io.WriteString(stdout, text); failed != nil {
				return errors.Join(err, failed)
			}
			return err
		}}
	cli.JSONFlag(cmd, &asJSON)
	return cmd
}

func backupCommand(stdout io.Writer, file *string) *cobra.Command {
	return keptCommand(backingUp, "backup FILE", "Copy the stored sign-ins to a file while the proxy runs",
		`Copy the stored sign-ins to a file, also while the proxy runs.

The copy is checked before it replaces an older file of that name. If anything fails, the older file stays.
Secrets in the copy are encrypted with the master keys, which are not in it: keep a copy of the key file in
another place.

For Postgres, use its own tool:
  pg_dump --format=custom --file=FILE DSN

A Junction without sign-ins, such as one with API keys alone, has no storage. A backup is then a copy of its files:
the command writes nothing, prints the command line, and ends with 1.`,
		"  junction storage backup /backup/junction.db --config config.yaml", 1, stdout, file,
		func(ctx context.Context, k kept, args []string) (any, string, error) {
			if k.Driver == store.Postgres {
				return nil, "", fmt.Errorf("the storage is Postgres; back it up with: pg_dump --format=custom "+
					"--file=%s DSN",
					shell.Quote(args[0]))
			}
			if _, err := existingPlace(k.storage); err != nil {
				return nil, "", err
			}
			r, err := store.Backup(ctx, k.Config, args[0])
			if err != nil {
				return nil, "", fmt.Errorf("no backup was made, and an older %s is unchanged: %w", args[0], err)
			}
			if err := k.audit(ctx, "storage_backed_up", args[0], r); err != nil {
				return nil, "", fmt.Errorf("%s was written, but its audit event cannot be stored: %w", args[0], err)
			}
			text := fmt.Sprintf("%s has %s.\nThe master keys are not in it: keep a copy of %s, too.\n", args[0],
				contents(r), cmp.Or(k.keyFile, config.MasterKeys))
			if k.ordered != "" {
				text += fmt.Sprintf("Nor are the certificates of tls, which a restore would order again: copy %s, and "+
					"keep the copy private, because the keys in it are not encrypted.\n", k.ordered)
			}
			return r, text, nil
		})
}

func restoreCommand(stdout io.Writer, file *string) *cobra.Command {
	return keptCommand(restoring, "restore FILE", "Replace the stored sign-ins by a backup",
		`Replace the stored sign-ins by a backup. Stop the proxy first.

The backup is checked before anything changes. It needs the master keys with which it was made, also on another
machine. A backup of an older version is migrated when the proxy starts. The storage that was there before stays
beside the new one.

What has happened since the backup is undone: users who were disabled, and sign-ins that were revoked, are valid
again. junction sessions revoke --all signs everyone out.

For Postgres, use its own tool:
  pg_restore --clean --if-exists --dbname=DSN FILE`,
		"  junction storage restore /backup/junction.db --config config.yaml", 1, stdout, file,
		func(ctx context.Context, k kept, args []string) (any, string, error) {
			if k.Driver == store.Postgres {
				return nil, "", fmt.Errorf("the storage is Postgres; restore it with: "+
					"pg_restore --clean --if-exists --dbname=DSN %s", shell.Quote(args[0]))
			}
			if err := os.MkdirAll(filepath.Dir(k.DSN), 0o700); err != nil {
				return nil, "", fmt.Errorf("storage.dsn: %w", err)
			}
			r, before, err := store.Restore(ctx, k.Config, args[0])
			if err != nil {
				return nil, "", fmt.Errorf("nothing was restored: %w", err)
			}
			if err := k.audit(ctx, "storage_restored", args[0], r); err != nil {
				return nil, "", fmt.Errorf("%s was restored, but its audit event cannot be stored: %w", args[0], err)
			}
			text := fmt.Sprintf("Restored to %s: %s.\n", k.DSN, contents(r))
			if before != "" {
				text += fmt.Sprintf("The storage from before is %s. Delete it when you do not need it any more.\n",
					before)
			}
			text += "Sign-ins that were revoked since the backup are valid again: " +
				"junction sessions revoke --all signs everyone out.\n"
			return struct {
				store.Report
				Before string `json:"before,omitempty"` // where the storage from before is
			}{r, before}, text, nil
		})
}

func checkCommand(stdout io.Writer, file *string) *cobra.Command {
	return keptCommand("storage check", "check", "Check that the stored sign-ins are whole and readable",
		`Check the stored sign-ins: the file is whole, the schema has nothing that this program has not made, such as a
trigger, the master keys open every secret, and they confirm every signed row. The command changes nothing, and the
proxy may run.

The exit code is 1 if there is a problem.`, "  junction storage check --config config.yaml", 0, stdout, file,
		func(ctx context.Context, k kept, _ []string) (any, string, error) {
			if _, err := existingPlace(k.storage); err != nil {
				return nil, "", err
			}
			r, err := store.Check(ctx, k.Config)
			if err != nil {
				return nil, "", fmt.Errorf("check the storage of sign-ins: %w", err)
			}
			if n := len(r.Problems); n > 0 {
				err = errors.New("the storage of sign-ins has " + prose.Count(n, "problem"))
			}
			return r, checked(r), err
		})
}

func migrateCommand(stdout io.Writer, file *string) *cobra.Command {
	return keptCommand("storage migrate", "migrate", "Prepare a Postgres for this version while the older one runs",
		`Prepare the schema of a Postgres for this version, while processes of the version before use it (replicas).

Run it once with the new version, before the first process of the new version starts. The older processes work
with the new schema, also after a restart, so an upgrade can be undone. Then replace the processes one by one.

Without other processes, the proxy migrates the database when it starts, and this command is not needed.`,
		"  junction storage migrate --config config.yaml", 0, stdout, file,
		func(ctx context.Context, k kept, _ []string) (any, string, error) {
			if k.Driver != store.Postgres {
				return nil, "", errors.New("the storage is a SQLite file; start the proxy, which migrates it")
			}
			was, now, err := store.Migrate(ctx, k.Config)
			if err != nil {
				return nil, "", fmt.Errorf("the schema was not changed: %w", err)
			}
			text := fmt.Sprintf("The schema is now %d, and was %d. Replace the processes one by one.\n", now, was)
			if was == now {
				text = fmt.Sprintf("The schema is %d: there is nothing to do.\n", now)
			}
			return struct {
				Was int `json:"was"`
				Now int `json:"now"`
			}{was, now}, text, nil
		})
}

// checked describes the result of a check.
func checked(r store.Report) string {
	if len(r.Problems) > 0 {
		var b strings.Builder
		for _, p := range r.Problems {
			fmt.Fprintf(&b, "problem  %s\n", prose.Flat(p))
		}
		return b.String()
	}
	text := fmt.Sprintf("The storage is whole: %s. The schema is Junction's. The master keys open every "+
		"secret, and confirm every signed row.\n", contents(r))
	if r.Schema < r.Latest {
		text += fmt.Sprintf("Its schema is %d. The proxy migrates it to %d when it starts.\n", r.Schema, r.Latest)
	}
	return text
}

// contents describes what is in a storage.
func contents(r store.Report) string {
	return fmt.Sprintf("%s, %s, %s, %s", prose.Count(r.Rows["users"], "user"), prose.Count(r.Rows["grants"], "grant"),
		prose.Count(r.Rows["upstream_tokens"], "connection"), prose.Count(r.Secrets, "secret"))
}
