package clients

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"junction/cmd/junction/base/revision"
	"junction/upstream/files"
)

// Withdrawals is a file that remembers which servers a person has removed from a configuration, so that they are
// not offered again. It has no values of them.
type Withdrawals struct {
	File string
}

// A Withdrawal is a server that was removed.
type Withdrawal struct {
	Name string `json:"name"`           // in the configuration
	From string `json:"from,omitempty"` // where it was imported from, as Merge.Origin returns it
	Sum  string `json:"sum"`            // SHA-256 of what it runs and sends
}

// maxWithdrawals is how many servers are remembered; the oldest ones are forgotten.
const maxWithdrawals = 200

// Load returns the servers that were removed. A file that cannot be read has none.
func (w *Withdrawals) Load() (list []Withdrawal) {
	text, err := revision.Read(w.File)
	if err != nil || json.Unmarshal(text, &list) != nil {
		return nil
	}
	return list
}

// Add remembers a server.
func (w *Withdrawals) Add(k *Known) error {
	list := slices.DeleteFunc(w.Load(), func(one Withdrawal) bool { return one.Name == k.Name })
	list = append(list, Withdrawal{k.Name, k.From, k.sum()})
	list = list[max(0, len(list)-maxWithdrawals):]
	text, err := json.Marshal(list)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(w.File), 0o700)
	}
	if err == nil {
		err = files.Write(w.File, append(text, '\n'))
	}
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", w.File, files.Reason(err))
	}
	return nil
}

// Forget forgets all servers.
func (w *Withdrawals) Forget() error {
	if err := os.Remove(w.File); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot remove %s: %w", w.File, files.Reason(err))
	}
	return nil
}

// Has reports whether a list has a server: it has the name, and is from the same place or is the same.
func Has(list []Withdrawal, k *Known, origin string) bool {
	return slices.ContainsFunc(list, func(w Withdrawal) bool {
		named := (&Known{Name: w.Name}).named(k.Name)
		return named && (w.From != "" && w.From == origin || w.Sum == k.sum())
	})
}

// sum returns a hash of what the server runs and sends.
func (k *Known) sum() string {
	filled := func(m map[string]string) map[string]string {
		if len(m) == 0 {
			return nil
		}
		return m
	}
	text, _ := json.Marshal([]any{append([]string{}, k.Command...), k.Dir, k.URL, filled(k.Env), filled(k.Headers),
		append([]string{}, k.Unset...)}) // it has strings only
	s := sha256.Sum256(text)
	return hex.EncodeToString(s[:])
}
