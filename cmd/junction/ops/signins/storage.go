package signins

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"junction/auth/seal"
	"junction/auth/store"
	"junction/cmd/junction/base/cli"
	"junction/cmd/junction/base/config"
	"junction/upstream/files"
	"junction/upstream/prose"
)

const StorageLimit = time.Minute // for a command

// storage is the open store of a configuration file, for a command.
type storage struct {
	*store.Store
	keys   *seal.Ring
	people map[string]store.User // by id
}

// openStorage opens the existing store of a configuration file. what is the command, for messages.
// The caller must close the store.
func openStorage(ctx context.Context, what, file string) (*storage, error) {
	c, err := storageConfig(what, file)
	if err != nil {
		return nil, err
	}
	return openStored(ctx, c)
}

// openStored opens the existing store of a configuration. The caller must close the store.
func openStored(ctx context.Context, c *config.Config) (*storage, error) {
	place, err := existingPlace(c.Storage)
	if err != nil {
		return nil, err
	}
	ring, _, err := existingRing(c.Storage)
	if err != nil {
		return nil, err
	}
	s, err := OpenStore(ctx, c.Storage, place, ring, true)
	if err != nil {
		return nil, err
	}
	all, err := s.Users(ctx, "")
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	people := map[string]store.User{}
	for _, u := range all {
		people[u.ID] = u
	}
	return &storage{s, ring, people}, nil
}

// loadConfig reads the configuration file of a command.
func loadConfig(what, file string) (*config.Config, error) {
	if file == "" {
		return nil, cli.Usagef("%s needs --config FILE, because the file names the storage of sign-ins", what)
	}
	return config.LoadAsService(file)
}

// storageConfig is loadConfig for a file that uses the storage.
func storageConfig(what, file string) (*config.Config, error) {
	c, err := loadConfig(what, file)
	if err == nil && c.Auth.OAuth == nil {
		err = fmt.Errorf("no sign-ins are stored: %s has no auth.oauth", file)
	}
	return c, err
}

// storingConfig is loadConfig for a file with which Junction has a database, also without sign-ins of users.
func storingConfig(what, file string) (*config.Config, error) {
	c, err := loadConfig(what, file)
	if err == nil && !c.Stores() {
		err = fmt.Errorf("nothing is stored: %s has neither auth.oauth, nor replicas, nor an upstream with "+
			"auth.mode %s", file, strings.Join(config.StoringModes(), " or "))
	}
	return c, err
}

// existingPlace returns the DSN of a store that a proxy has already created. Commands call it
// before existingRing: if neither store nor keys exist, "nothing is stored yet" is the better
// message.
func existingPlace(c config.Storage) (string, error) {
	place, err := c.Place(os.LookupEnv)
	if err != nil || c.Driver == store.Postgres {
		return place, err
	}
	info, err := os.Stat(place)
	switch {
	case errors.Is(err, fs.ErrNotExist) && c.DSN == "":
		err = fmt.Errorf("nothing is stored: there is no %s; start junction first, run the command as the user "+
			"of the proxy, or name the file (storage.dsn)", place)
	case errors.Is(err, fs.ErrNotExist):
		err = fmt.Errorf("nothing is stored yet: there is no %s (storage.dsn); start junction first, which "+
			"makes the file", place)
	case err != nil:
		err = fmt.Errorf("find the storage of sign-ins (storage.dsn): %w", err)
	case !info.Mode().IsRegular():
		err = fmt.Errorf("%s is no file (storage.dsn)", place)
	}
	return place, err
}

// keysOf reads the master keys of the environment variable. Without any there, file is the key file.
func keysOf(c config.Storage, getenv func(string) (string, bool)) (ring *seal.Ring, file string, err error) {
	file, text, err := c.Keys(getenv)
	if err != nil || file != "" {
		return nil, file, err
	}
	if ring, err = seal.ParseRing(text); err != nil {
		err = fmt.Errorf("%s: %w", config.MasterKeys, err)
	}
	return ring, "", err
}

// MasterKeys reads the master keys, and creates the first one if there is no key file. made is the file
// with a new key; "" if there is none.
func MasterKeys(c config.Storage, getenv func(string) (string, bool)) (ring *seal.Ring, made string, err error) {
	ring, file, err := keysOf(c, getenv)
	if err != nil || file == "" {
		return ring, "", err
	}
	isNew := false
	if err = os.MkdirAll(filepath.Dir(file), 0o700); err == nil {
		ring, isNew, err = seal.LoadRing(file)
	}
	if err != nil {
		return nil, "", fmt.Errorf("storage.key_file: %w", err)
	}
	if isNew {
		made = file
	}
	return ring, made, nil
}

// CheckStorage returns why Junction would not start with a storage; nil also if nothing is stored yet. It makes
// no files.
func CheckStorage(c config.Storage, getenv func(string) (string, bool)) error {
	_, file, err := keysOf(c, getenv)
	if err == nil && file != "" {
		if _, err = os.Stat(file); err == nil {
			_, _, err = seal.LoadRing(file)
		}
		if errors.Is(err, fs.ErrNotExist) { // the start makes the file
			err = nil
		}
		if err != nil {
			err = fmt.Errorf("storage.key_file: %w", err)
		}
	}
	return err
}

// existingRing reads the master keys and creates none. file is the key file, or "" if the keys are
// in the environment variable.
func existingRing(c config.Storage) (ring *seal.Ring, file string, err error) {
	ring, file, err = keysOf(c, os.LookupEnv)
	if err != nil || file == "" {
		return ring, "", err
	}
	if _, err = os.Stat(file); err == nil {
		ring, _, err = seal.LoadRing(file)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist) && c.KeyFile == "":
		err = fmt.Errorf("there are no master keys, neither in %s nor in %s: run the command as the user of the "+
			"proxy, or name the file (storage.key_file)", config.MasterKeys, file)
	case err != nil:
		err = fmt.Errorf("read the master keys (storage.key_file): %w", err)
	}
	return ring, file, err
}

// OpenStore opens the existing store at a place. With attach, a running proxy may use the store at
// the same time; without, the caller must be its only user.
func OpenStore(ctx context.Context, c config.Storage, place string, ring *seal.Ring,
	attach bool) (*store.Store, error) {
	s, err := store.Open(ctx, store.Config{Driver: c.Driver, DSN: place, Keys: ring, Attach: attach})
	if err != nil {
		return nil, fmt.Errorf("open the storage of sign-ins: %w", err)
	}
	return s, nil
}

// storageCommand is `junction storage`.
func storageCommand(stdout io.Writer, file *string) *cobra.Command {
	cmd := &cobra.Command{
		Use: "storage", Short: "Back up, restore and check the stored sign-ins", Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	all, yes, asJSON := false, false, false
	rotate := &cobra.Command{
		Use: "rotate", Short: "Encrypt everything with a new master key", Args: cli.NoArguments,
		Long: `Encrypt all stored sign-ins with a new master key.

With SQLite and a key file (storage.key_file), the command creates the key, writes it to the first line of the
file, and encrypts everything with it. Stop the proxy first, because it does not know the new key. All users
stay signed in. The old key stays in the file, because older clients and tokens need it. If you delete its line
later, users who have not connected since must sign in again, and apps must register again.

With Postgres, or with the keys in ` + config.MasterKeys + `, add the key yourself. The command encrypts
everything with the first key while the proxies run:
  1. add the new key as the last one for every proxy, and restart all of them
  2. make it the first one for every proxy, and restart all of them
  3. junction storage rotate
  4. later, delete the old key as above

The command changes nothing while one of several proxies over a Postgres (replicas) does not encrypt with the first
key, and names it.

If a master key has leaked, use --revoke-all: it also signs everyone out. With SQLite and a key file, only the
new key remains.`,
		Example: `  junction storage rotate --config config.yaml
  junction storage rotate --revoke-all --yes --config config.yaml`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := storingConfig("storage rotate", *file)
			if err != nil {
				return err
			}
			if all {
				if err := cli.Confirm(cmd, yes, "Replace the master key and sign everyone out?"); err != nil {
					return err
				}
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), 10*StorageLimit)
			defer cancel()
			if !asJSON {
				return rotate(ctx, c.Storage, stdout, all, time.Now())
			}
			var lines bytes.Buffer
			err = rotate(ctx, c.Storage, &lines, all, time.Now())
			return errors.Join(cli.PrintValue(stdout, struct {
				Done []string `json:"done"` // sentences; all steps that were carried out
			}{append([]string{}, strings.Split(strings.TrimSpace(lines.String()), "\n")...)}), err)
		},
	}
	rotate.Flags().BoolVar(&all, "revoke-all", false, "also sign everyone out")
	cli.YesFlag(rotate, &yes)
	cli.JSONFlag(rotate, &asJSON)
	cmd.AddCommand(backupCommand(stdout, file), restoreCommand(stdout, file), checkCommand(stdout, file),
		migrateCommand(stdout, file), rotate)
	return cmd
}

// The first key of the ring encrypts; all keys decrypt and verify, including the credentials of
// clients. A process must not encrypt with a key that another process on the same storage lacks. So
// during a rotation, either no proxy runs, or every proxy already has the key.

// rotate encrypts everything with the first key of the ring. If the keys are in a file and the
// storage is not Postgres, it first puts a new key in front.
func rotate(ctx context.Context, c config.Storage, w io.Writer, revokeAll bool, now time.Time) error {
	place, err := existingPlace(c)
	if err != nil {
		return err
	}
	ring, file, err := existingRing(c)
	if err != nil {
		return err
	}
	ours := file != "" && c.Driver != store.Postgres
	if !ours && !revokeAll && len(ring.IDs()) == 1 {
		where := config.MasterKeys
		if file != "" {
			where = file + " of every proxy"
		}
		return fmt.Errorf("%s has only the key %s, which encrypts everything; add a new key there yourself, such as "+
			"%s:$(openssl rand -base64 %d), in the steps of junction storage rotate --help",
			where, ring.IDs()[0], seal.KeyID(now, ring.IDs()), seal.SecretSize)
	}
	var text []byte
	if ours {
		old, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("read the master keys (storage.key_file): %w", err)
		}
		text = append([]byte(seal.NewEntry(now, ring.IDs())+"\n"), old...)
		if ring, err = seal.ParseRing(string(text)); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	s, err := OpenStore(ctx, c, place, ring, !ours)
	if used, ok := errors.AsType[*store.InUseError](err); ok {
		return fmt.Errorf("%s uses %s; stop the proxy first, because it reads the new key only when it starts; "+
			"nothing was changed", cmp.Or(used.Holder, "another process"), used.File)
	}
	if err != nil {
		return err
	}
	err = reseal(ctx, w, s, ring, file, text, revokeAll)
	return errors.Join(err, s.Close())
}

// reseal encrypts everything again in an open store. text is the new content of the key file; nil
// leaves the file unchanged.
func reseal(ctx context.Context, w io.Writer, s *store.Store, ring *seal.Ring, file string, text []byte,
	revokeAll bool) error {
	first := ring.IDs()[0]
	if text != nil { // on the disk before the key is used
		if err := files.Replace(file, text); err != nil {
			return fmt.Errorf("write the master keys: %w; nothing was changed", err)
		}
		cli.Tellf(w, "Master key %s is in front of %s: keep a copy of it.\n", first, file)
	}
	again := func(err error) error {
		return fmt.Errorf("%w; all that is stored can be read, with the keys as they are now; run this again", err)
	}
	promoted, err := s.PromoteKey(ctx) // first, because it may refuse
	switch {
	case errors.Is(err, store.ErrMembers):
		return err
	case errors.Is(err, store.ErrNewer) && text == nil: // this program may not know all that is sealed
		return fmt.Errorf("%w; nothing was changed", err)
	case err != nil:
		return again(err)
	}
	if revokeAll {
		users, err := s.Users(ctx, "")
		if err != nil {
			return again(err)
		}
		ended, err := (&storage{Store: s}).signOut(ctx, users)
		if err != nil {
			return again(err)
		}
		cli.Tellf(w, "Ended: %s and %s.\n", prose.Count(ended.Sessions, "session"),
			prose.Count(len(ended.Grants), "grant"))
	}
	made, err := s.Reencrypt(ctx)
	made.Values += promoted
	if err == nil {
		err = s.Audit(ctx, store.Event{Event: "master_key_rotated", Detail: fmt.Appendf(nil, `{"key":%q}`, first)})
	}
	if err != nil {
		return again(err)
	}
	cli.Tellf(w, "Sealed anew with %s: %s. Signed anew: %s.\n", first, prose.Count(made.Values, "value"),
		prose.Count(made.Rows, "row"))
	if made.Changed > 0 {
		cli.Tellf(w, "Left as they are, because another program has changed them: %s. Nothing uses these rows; "+
			"junction storage check lists them.\n", prose.Count(made.Changed, "row"))
	}
	left := strings.Join(ring.IDs()[1:], ", ")
	switch {
	case text != nil && revokeAll:
		alone, _, _ := bytes.Cut(text, []byte("\n"))
		if err := files.Replace(file, append(alone, '\n')); err != nil {
			return fmt.Errorf("take the old master keys out of %s: %w; remove all lines but the first", file, err)
		}
		cli.Tellf(w, "Gone from %s: %s. Apps have to register again, and some do only when they are removed and "+
			"added again.\n", file, left)
	case left != "" && revokeAll:
		cli.Tellf(w, "Now remove these keys and restart every proxy: anyone who has one of them can still make "+
			"tokens that look like ours: %s.\n", left)
	case revokeAll:
		cli.Tellf(w, "There is no other key than %s: if it has leaked, put another one in its place "+
			"everywhere.\n", first)
	default:
		cli.Tellf(w, "Kept, for clients and tokens from before: %s.\n", left)
	}
	return nil
}
