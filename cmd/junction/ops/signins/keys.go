package signins

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"junction/auth"
	"junction/cmd/junction/base/cli"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/ops/admin"
	"junction/upstream/prose"
)

// keysCommand is `junction keys`, about the API keys of the configuration file. It connects to no
// servers.
func keysCommand(stdin io.Reader, stdout, stderr io.Writer, file *string) *cobra.Command {
	keys := &cobra.Command{
		Use:   "keys",
		Short: "Create, list and revoke the API keys of the configuration file",
		Args:  cli.NoArguments,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	keys.AddCommand(keysCreateCommand(stdout, stderr, file), keysHashCommand(stdin, stdout),
		keysListCommand(stdout, file),
		keysRevokeCommand(stdout, file))
	return keys
}

// keysCreateCommand is `junction keys create`.
func keysCreateCommand(stdout, stderr io.Writer, file *string) *cobra.Command {
	var k newKey
	create := &cobra.Command{
		Use:   "create NAME",
		Short: "Create a key and its entry for the configuration file",
		Long: `Create a key and its entry for the configuration file.

The key is printed once, on standard output; the file holds only its hash. The entry is printed on standard
error, as YAML for the list auth.api_keys. With --write, it is added to the configuration file; comments and
order stay, and the old file becomes a backup. To replace a key, create another one with the same NAME, and
revoke the old one when no client uses it any more.`,
		Example: `  junction keys create ci --write --config config.yaml
  junction keys create ci --expires 90d --cidr 10.0.0.0/8
  junction keys create ci 2>entry.yaml | secret-store put junction-ci`,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) != 1:
				return cli.Usagef("keys create needs one name: the name of the owner of the key")
			case !auth.ValidName(args[0]) || auth.HoldsKey(args[0]):
				return cli.Usagef("the name must be 1 to 64 of A-Z, a-z, 0-9 and . _ - @, such as ci")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if k.write && *file == "" {
				return admin.NeedsFile("keys create --write")
			}
			key := auth.NewKey()
			hash, err := auth.HashKey(key)
			if err != nil {
				return fmt.Errorf("making a key: %w", err)
			}
			entry, err := k.entry(args[0], hash, time.Now())
			if err != nil {
				return err
			}
			return k.create(cmd.Context(), stdout, stderr, *file,
				createdJSON{Name: args[0], Key: key, Hash: hash.String(), Entry: entry})
		},
	}
	create.Flags().BoolVar(&k.write, "write", false, "add the entry to the configuration file")
	cli.JSONFlag(create, &k.json)
	create.Flags().StringVar(&k.expires, "expires", "", "when the key expires: `90d`, the last day in UTC "+
		"(2027-06-30), or a time (2027-06-30T12:00:00Z); default: never")
	create.Flags().StringSliceVar(&k.cidrs, "cidr", nil,
		"`network` that may use the key, such as 10.0.0.0/8; may be repeated")
	create.Flags().StringSliceVar(&k.endpoints, "endpoint", nil,
		"`endpoint` that exists for the key: a name of endpoints, mcp, or mcp/UPSTREAM; may be repeated; default: all")
	return create
}

// keysHashCommand is `junction keys hash`.
func keysHashCommand(stdin io.Reader, stdout io.Writer) *cobra.Command {
	hashJSON := false
	hash := &cobra.Command{
		Use:     "hash",
		Short:   "Read a key from standard input and print its hash",
		Example: `  secret-store get junction-ci | junction keys hash`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return cli.Usagef("keys hash reads the key from standard input: as an argument it would be in the " +
					"shell's history and in the list of processes")
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
			if hashJSON {
				return cli.PrintValue(stdout, map[string]string{"hash": h.String()})
			}
			_, err = fmt.Fprintln(stdout, h)
			return err
		},
	}
	cli.JSONFlag(hash, &hashJSON)
	return hash
}

// keysListCommand is `junction keys list`.
func keysListCommand(stdout io.Writer, file *string) *cobra.Command {
	var output string
	list := &cobra.Command{
		Use: "list", Short: "List the keys of the configuration file", Args: cli.NoArguments,
		Long: `List the keys of the configuration file (auth.api_keys). The audit shows when a key was used, as the
principal key:NAME. ID is the beginning of the key's hash: the audit has it as key_id, and so has the log. It
tells two keys of one NAME apart. POLICIES are those that the key can match: by its name, or because they name none.

If the file has mistakes, the command lists the keys that can be read, and fails with the first mistake.`,
		RunE: func(*cobra.Command, []string) error {
			if err := cli.CheckOutput(output); err != nil {
				return err
			}
			list, mistakes, err := keysOfFile("keys list", *file, time.Now())
			if err != nil {
				return err
			}
			head, ruled := []any{"NAME", "ID", "LINE", "GOOD FROM", "EXPIRES"}, false
			if ruled = len(list) > 0 && list[0].Policies != nil; ruled {
				head = append(head, "POLICIES")
			}
			err = cli.List[keyJSON]{
				Name: "keys", Of: list, None: prose.Tilde(*file) + " has no keys", Head: head,
				Cells: func(k keyJSON) []any {
					end := cmp.Or(k.Expires, "never")
					switch {
					case k.Expired:
						end += " (expired)"
					case k.Expiring:
						end += " (soon)"
					}
					from := cmp.Or(strings.Join(k.CIDRs, " "), "anywhere")
					if len(k.Endpoints) > 0 {
						from += ", only at " + strings.Join(k.Endpoints, " ")
					}
					cells := []any{k.Name, k.ID, k.Line, from, end}
					if ruled {
						cells = append(cells, cmp.Or(strings.Join(k.Policies, " "), "none"))
					}
					return cells
				},
			}.Print(stdout, output == "json")
			if err == nil && len(mistakes) > 0 {
				err = fmt.Errorf("the keys in force may be others, because Junction does not take up this file: %s",
					config.First(*file, mistakes))
			}
			return err
		},
	}
	cli.OutputFlag(list, &output)
	return list
}

// keyJSON is an API key of the file.
type keyJSON struct {
	Name string `json:"name"`
	// ID tells the keys of one name apart in the audit and in the log (key_id).
	ID    string   `json:"id"`
	Hash  string   `json:"hash"`
	Line  int      `json:"line"`
	CIDRs []string `json:"cidrs,omitempty"`
	// Endpoints are the only endpoints that exist for the key; none are all.
	Endpoints []string `json:"endpoints,omitempty"`
	Expires   string   `json:"expires,omitempty"`
	Expired   bool     `json:"expired"`
	// Expiring means that the key expires within two weeks.
	Expiring bool `json:"expiring,omitempty"`
	// Policies are those that the key can match; nil without the section, which restricts nothing.
	Policies []string `json:"policies,omitzero"`
}

// keysOfFile returns the keys of a file that can be read, in their order, and the mistakes for which Junction rejects
// the file. what is the command, for messages.
func keysOfFile(what, file string, now time.Time) ([]keyJSON, config.Problems, error) {
	if file == "" {
		return nil, nil, admin.NeedsFile(what)
	}
	c, lines, mistakes, err := config.LoadKeys(file)
	if err != nil {
		return nil, nil, err
	}
	list := []keyJSON{}
	for i, k := range c.Auth.APIKeys {
		if k.Name == "" || k.Hash == (auth.Hash{}) {
			continue
		}
		j := keyJSON{Name: k.Name, ID: k.Hash.ID(), Hash: k.Hash.String(), Line: lines[i], Endpoints: k.Endpoints}
		if c.Policies != nil {
			j.Policies = append([]string{}, c.Policies.Holding(k.Name)...)
		}
		for _, c := range k.CIDRs {
			j.CIDRs = append(j.CIDRs, c.String())
		}
		if !k.Expires.IsZero() {
			j.Expires, j.Expired = k.Expires.String(), !now.Before(k.Expires.Time)
			j.Expiring = k.Expiring(now)
		}
		list = append(list, j)
	}
	return list, mistakes, nil
}

// newKey are the flags of `junction keys create`.
type newKey struct {
	expires   string
	cidrs     []string
	endpoints []string
	write     bool // to the configuration file
	json      bool
}

// entry returns the entry of the key for the configuration file.
func (k *newKey) entry(name string, hash auth.Hash, now time.Time) (string, error) {
	if name[0] < 'A' || strings.EqualFold(name, "null") {
		name = strconv.Quote(name) // so that YAML reads it as a string
	}
	entry := "- { name: " + name + `, hash: "` + hash.String() + `"`
	for i, text := range k.cidrs {
		var c auth.CIDR
		if err := c.UnmarshalText([]byte(text)); err != nil {
			return "", cli.Usagef("--cidr %s: %w", auth.Redact(text), err)
		}
		k.cidrs[i] = strconv.Quote(c.String())
	}
	if len(k.cidrs) > 0 {
		entry += ", cidrs: [" + strings.Join(k.cidrs, ", ") + "]"
	}
	for i, name := range k.endpoints {
		if !endpointName.MatchString(name) || auth.HoldsKey(name) {
			return "", cli.Usagef("--endpoint %s: must be a name of the section endpoints, mcp, or mcp/ and the name "+
				"of an upstream", auth.Redact(name))
		}
		k.endpoints[i] = strconv.Quote(name)
	}
	if len(k.endpoints) > 0 {
		entry += ", endpoints: [" + strings.Join(k.endpoints, ", ") + "]"
	}
	if k.expires != "" {
		end, err := expiry(k.expires, now)
		if err != nil {
			return "", cli.Usagef("--expires %s: %w", auth.Redact(k.expires), err)
		}
		entry += ", expires: " + end
	}
	return entry + " }", nil
}

// endpointName matches what an entry of a key may call an endpoint.
var endpointName = regexp.MustCompile(`^(mcp/)?[A-Za-z0-9_-]{1,64}$`)

// expiry returns the expiry of a key in the form of the configuration file.
func expiry(text string, now time.Time) (string, error) {
	if digits, ok := strings.CutSuffix(text, "d"); ok {
		days, err := strconv.ParseUint(digits, 10, 16)
		if err != nil || days == 0 {
			return "", errors.New("must be a number of days, such as 90d")
		}
		return auth.Moment{Time: now.AddDate(0, 0, int(days)).Truncate(time.Second)}.String(), nil
	}
	var end auth.Moment
	if err := end.UnmarshalText([]byte(text)); err != nil {
		return "", errors.New("must be a number of days, such as 90d, a day, such as 2027-06-30, or a time, such as " +
			"2027-06-30T12:00:00Z")
	}
	if !now.Before(end.Time) {
		return "", errors.New("is in the past")
	}
	return text, nil
}
