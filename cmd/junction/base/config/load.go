package config

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"junction/upstream/files"
	"junction/upstream/prose"
)

// maxFile limits the size of the file, far above that of a real configuration.
const maxFile = 1 << 20

// Load reads the file and expands its references with getenv (os.LookupEnv outside of tests). For
// the file name "" it returns the defaults, without upstreams.
//
// If the file has mistakes, the error is Problems: all of them, in the order of their lines.
// Warnings are returned with and without an error. They concern conditions outside the file that
// affect one upstream but not the start of the program.
func Load(file string, getenv func(string) (string, bool)) (*Config, Problems, error) {
	c, d, warnings, err := load(file, getenv, nil)
	warnings = append(warnings, c.packWarnings(d)...)
	if err != nil {
		c = nil
	}
	return c, warnings, err
}

// load is Load, but returns the readable part of a file along with Problems. The decoder is nil
// without a file.
func load(file string, getenv func(string) (string, bool), printed Printed) (*Config, *decoder, Problems, error) {
	if file == "" {
		return defaultConfig(), nil, nil, nil
	}
	text, err := readFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w; name another file with --config, or create it with junction add", err)
	}
	if err != nil {
		return nil, nil, nil, err
	}
	c, d := parse(file, text, getenv, printed)
	return c, d, d.warnings(c), d.err()
}

func readFile(file string) ([]byte, error) {
	text, err := files.Read(file, maxFile)
	if errors.Is(err, files.ErrIrregular) {
		return nil, fmt.Errorf("read the configuration %s: %w; name a file, such as config.yaml", file, err)
	}
	if err != nil {
		return nil, fmt.Errorf("read the configuration %s: %w", file, err)
	}
	return text, nil
}

// Parse is Load for text that is, or will become, the content of the file. If the text has mistakes,
// the error is Problems, and the Config has the readable part of the text.
func Parse(file string, text []byte, getenv func(string) (string, bool)) (*Config, error) {
	if len(text) > maxFile {
		return nil, fmt.Errorf("%s would be larger than %d KiB", file, maxFile>>10)
	}
	c, d := parse(file, text, getenv, nil)
	return c, d.err()
}

// noUpstreams is the mistake of a file without upstreams.
const noUpstreams = "needs at least one entry, such as demo: { command: [junction, demo] }"

// LoadForCommand is LoadServing for a command: a mistake in the entry of one upstream blocks only
// that upstream, and the file may have no upstreams. It replaces Problems by an error that counts
// them. A variable that is not set is no mistake, except in the sections that all commands read, and
// in those of needs: the service has variables that the shell of an operator does not have.
func LoadForCommand(file string, needs ...string) (*Config, error) {
	return LoadForCommandWith(file, nil, needs...)
}

// LoadForCommandWith is LoadForCommand for a command that needs what programs have printed.
func LoadForCommandWith(file string, printed Printed, needs ...string) (*Config, error) {
	c, d, _, err := load(file, os.LookupEnv, printed)
	problems, ok := errors.AsType[Problems](err)
	if !ok {
		return c, err
	}
	needs = append(needs, "upstreams", "storage", "listen", "admin", "public_url", "audit", "pins", "outbound")
	needed := slices.DeleteFunc(slices.Clone(problems), func(p Problem) bool {
		section, _, _ := strings.Cut(p.Path, ".")
		return d.unresolved[p.Path] && !slices.Contains(needs, section)
	})
	rejecting := c.block(d, needed, false)
	// a person may add the first one later
	rejecting = slices.DeleteFunc(rejecting, func(p Problem) bool { return p.Text == noUpstreams })
	if len(rejecting) == 0 {
		return c, nil
	}
	first := rejecting[0]
	if name := d.unset[first.Path]; name != "" && len(rejecting) == 1 {
		return nil, fmt.Errorf("%s:%d: %s needs the environment variable %s, which is not set in this shell; set it "+
			"to the value that the running junction has", file, first.Line, first.Path, name)
	}
	return nil, Unusable(file, needed)
}

// LoadAsService is LoadForCommand with the variables of the service of the file (UseEnvironment), for a command that
// reads the storage, or asks servers and authorities, in place of the service.
func LoadAsService(file string, needs ...string) (*Config, error) {
	if _, err := UseEnvironment(file); err != nil {
		return nil, err
	}
	return LoadForCommand(file, needs...)
}

// LoadKeys returns the readable part of a file for a command that lists its API keys, the line of each entry of
// auth.api_keys, and the mistakes for which Junction rejects the file. A missing file, and one that is not a mapping
// of YAML, is an error.
func LoadKeys(file string) (*Config, []int, Problems, error) {
	text, err := readFile(file)
	if err != nil {
		return nil, nil, nil, err
	}
	c, d := parse(file, text, os.LookupEnv, nil)
	rejecting := c.Rejecting(d.Problems)
	if slices.ContainsFunc(rejecting, func(p Problem) bool { return p.Path == "" }) {
		return nil, nil, nil, errors.New(First(file, rejecting))
	}
	lines := make([]int, len(c.Auth.APIKeys))
	for i := range lines {
		lines[i] = d.line(fmt.Sprintf("auth.api_keys[%d]", i))
	}
	return c, lines, rejecting, nil
}

// Unusable returns the error of a command that cannot use the file because of its mistakes.
func Unusable(file string, ps Problems) error {
	return fmt.Errorf("%s has %s; %s shows them", file, prose.Count(len(ps), "mistake"),
		Command(file, "check"))
}

// parse returns the readable part of a text, and the decoder with its lines and mistakes. The file
// name is used in messages and as the base of relative paths in ${file:…}. all resolves the
// references of disabled upstreams, too.
func parse(file string, text []byte, getenv func(string) (string, bool), printed Printed) (*Config, *decoder) {
	c, d := defaultConfig(), newDecoder(file, getenv, printed)
	if d.decode(text, c) {
		c.lower()
		if c.Audit.relative() {
			c.Audit.File = beside(file, c.Audit.File)
		}
		if c.Outbound.CAFile != "" {
			c.Outbound.CAFile = beside(file, c.Outbound.CAFile)
		}
		d.keyFiles(c)
		if len(d.from) > 0 {
			c.Origins = d.from
		}
		d.usePacks(c)
		d.reserve(c)
		c.separate()
		c.validate(d)
		c.confine(d)
		c.Own = c.folderOwn(d)
		if len(d.refs.named) > 0 {
			c.Inputs = d.refs.named
		}
	}
	d.Problems.Sort()
	return c, d
}

// lower converts URLs, origins and hosts to the form in which they are compared.
func (c *Config) lower() {
	c.PublicURL = strings.TrimSuffix(strings.ToLower(c.PublicURL), "/")
	for scheme, port := range map[string]string{"https://": ":443", "http://": ":80"} {
		if strings.HasPrefix(c.PublicURL, scheme) {
			c.PublicURL = strings.TrimSuffix(c.PublicURL, port)
		}
	}
	for _, l := range [][]string{c.AllowedOrigins, c.AllowedHosts} {
		for i := range l {
			l[i] = strings.ToLower(l[i])
		}
	}
}

// Checksum returns the SHA-256 sum of the file, to detect changes. It is zero for the file name "".
func Checksum(file string) ([32]byte, error) {
	hash, _, err := Look(file)
	return hash, err
}

// Look is Checksum, and reports whether the file ends with the end of a line. One that does not may
// be a file that is still being written.
func Look(file string) (hash [32]byte, ends bool, err error) {
	if file == "" {
		return [32]byte{}, true, nil
	}
	text, err := readFile(file)
	if err != nil {
		return [32]byte{}, false, err
	}
	return sha256.Sum256(text), bytes.HasSuffix(text, []byte{'\n'}), nil
}
