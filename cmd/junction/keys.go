package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"junction/auth"
)

// keysCommand is `junction keys`: API keys for the file. It changes no file, and asks no server.
func keysCommand(stdin io.Reader, stdout, stderr io.Writer) *cobra.Command {
	keys := &cobra.Command{
		Use:   "keys",
		Short: "make API keys for the configuration file",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("there is no command keys %s; there are keys create and keys hash", auth.Redact(args[0]))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	var k newKey
	create := &cobra.Command{
		Use:   "create NAME",
		Short: "make a key, and its entry for the file",
		Long: `Make a key, and its entry for the file.

The key goes to standard output, and is shown this once: the file holds its hash. The entry goes to standard error, as YAML for the list auth.api_keys.
To replace a key, create another of the same NAME, add its entry beside the old one, and remove that when nobody uses it any more.`,
		Example: `  junction keys create ci --expires 90d --cidr 10.0.0.0/8
  junction keys create ci 2>entry.yaml | secret-store put junction-ci`,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) != 1:
				return usagef("keys create needs one name, that of whoever gets the key")
			case !auth.ValidName(args[0]) || auth.HoldsKey(args[0]):
				return usagef("a name is 1 to 64 of A-Z, a-z, 0-9 and . _ - @, such as ci")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			key := auth.NewKey()
			hash, err := auth.HashKey(key)
			if err != nil {
				return fmt.Errorf("making a key: %w", err)
			}
			entry, err := k.entry(args[0], hash, time.Now())
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintln(stdout, key); err != nil {
				return fmt.Errorf("writing the key: %w", err)
			}
			_, err = fmt.Fprintf(stderr, "# The key is shown this once. Its entry, for the list auth.api_keys of the configuration:\n%s\n", entry)
			return err
		},
	}
	create.Flags().StringVar(&k.expires, "expires", "", "when it ends: `90d`, or the last day in UTC (2027-06-30), or a time (2027-06-30T12:00:00Z); never by default")
	create.Flags().StringSliceVar(&k.cidrs, "cidr", nil, "a `network` that it is good from, such as 10.0.0.0/8; may be given several times")
	hash := &cobra.Command{
		Use:     "hash",
		Short:   "print the hash of a key that is read from standard input",
		Example: `  secret-store get junction-ci | junction keys hash`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("keys hash reads the key from standard input: as an argument it would be in the shell's history and in the list of processes")
			}
			return nil
		},
		RunE: func(*cobra.Command, []string) error {
			text, err := io.ReadAll(io.LimitReader(stdin, 4<<10))
			if err != nil {
				return fmt.Errorf("reading the key: %w", err)
			}
			h, err := auth.HashKey(strings.TrimSpace(string(text)))
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(stdout, h)
			return err
		},
	}
	keys.AddCommand(create, hash)
	return keys
}

// newKey is what the command line says of a key to make.
type newKey struct {
	expires string
	cidrs   []string
}

// entry returns the key's entry in the file.
func (k *newKey) entry(name string, hash auth.Hash, now time.Time) (string, error) {
	if name[0] < 'A' || strings.EqualFold(name, "null") {
		name = strconv.Quote(name) // so that YAML takes it for text
	}
	entry := "- { name: " + name + `, hash: "` + hash.String() + `"`
	for i, text := range k.cidrs {
		var c auth.CIDR
		if err := c.UnmarshalText([]byte(text)); err != nil {
			return "", usagef("--cidr %s: %w", auth.Redact(text), err)
		}
		k.cidrs[i] = strconv.Quote(c.String())
	}
	if len(k.cidrs) > 0 {
		entry += ", cidrs: [" + strings.Join(k.cidrs, ", ") + "]"
	}
	if k.expires != "" {
		end, err := expiry(k.expires, now)
		if err != nil {
			return "", usagef("--expires %s: %w", auth.Redact(k.expires), err)
		}
		entry += ", expires: " + end
	}
	return entry + " }", nil
}

// expiry returns when a key ends, as the file has it.
func expiry(text string, now time.Time) (string, error) {
	if digits, ok := strings.CutSuffix(text, "d"); ok {
		days, err := strconv.ParseUint(digits, 10, 16)
		if err != nil || days == 0 {
			return "", errors.New("want a number of days, such as 90d")
		}
		return auth.Moment{Time: now.AddDate(0, 0, int(days)).Truncate(time.Second)}.String(), nil
	}
	var end auth.Moment
	if err := end.UnmarshalText([]byte(text)); err != nil {
		return "", errors.New("want a number of days, such as 90d, a day, such as 2027-06-30, or a time, such as 2027-06-30T12:00:00Z")
	}
	if !now.Before(end.Time) {
		return "", errors.New("is in the past")
	}
	return text, nil
}
