package auth

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// Config is the file's auth section.
type Config struct {
	// APIKeys are the keys that clients may show. When there are any, every request needs one; without, whoever reaches the address is let in, which must then be on
	// loopback.
	APIKeys []Key `yaml:"api_keys"`
	// TrustedProxies are the networks of the proxies in front of us: a request from there comes from the last address in its X-Forwarded-For that is in none of them.
	TrustedProxies []CIDR `yaml:"trusted_proxies"`
}

// Key is what the file holds of one API key. Two entries of one name are one principal: that is how a key is replaced without a moment in which none is good.
type Key struct {
	Name string `yaml:"name"` // who has the key, for policies and logs: 1 to 64 of A-Z, a-z, 0-9 and . _ - @. Required.
	Hash Hash   `yaml:"hash"` // "sha256:" and 64 hexadecimal digits, as junction keys create prints it. Required; the key itself is in no file.
	// CIDRs are the networks that the key is good from. Default: all.
	CIDRs []CIDR `yaml:"cidrs"`
	// Expires is the last day on which the key is good, in UTC, or a moment. Default: never.
	Expires Moment `yaml:"expires"`
}

// CIDR is a network of the file, such as 10.0.0.0/8.
type CIDR struct{ netip.Prefix }

// UnmarshalText reads a network. It refuses one that would not mean what it seems to.
func (c *CIDR) UnmarshalText(text []byte) error {
	s := string(text)
	p, err := netip.ParsePrefix(s)
	if a, addressErr := netip.ParseAddr(s); err != nil && addressErr == nil && a.Zone() == "" {
		a = a.Unmap()
		return fmt.Errorf("want a network; write %s/%d for this address alone", a, a.BitLen())
	}
	switch {
	case err != nil:
		return errors.New("want a network, such as 10.0.0.0/8 or 2001:db8::/32")
	case p.Addr().Is4In6():
		if p.Bits() < 96 {
			return errors.New("want a network, such as 10.0.0.0/8 or 2001:db8::/32")
		}
		return fmt.Errorf("IPv4 addresses are compared as such; write %s", netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96).Masked())
	case p != p.Masked():
		return fmt.Errorf("the address goes on after its first %d bits; write %s", p.Bits(), p.Masked())
	}
	c.Prefix = p
	return nil
}

// Moment is a point in time of the file: a day, which counts to its end in UTC, or a time with its zone.
type Moment struct{ time.Time }

// UnmarshalText reads 2027-06-30 or 2027-06-30T12:00:00Z.
func (m *Moment) UnmarshalText(text []byte) error {
	if day, err := time.Parse(time.DateOnly, string(text)); err == nil {
		m.Time = day.AddDate(0, 0, 1)
		return nil
	}
	t, err := time.Parse(time.RFC3339, string(text))
	if err != nil {
		return errors.New("want a day, such as 2027-06-30, or a time, such as 2027-06-30T12:00:00Z")
	}
	m.Time = t.UTC()
	return nil
}

// String returns the moment as the file may have it.
func (m Moment) String() string { return m.UTC().Format(time.RFC3339) }

// Problem is one mistake of the section: where, such as api_keys[0].name, and what is wrong and would be right.
type Problem struct{ Path, Text string }

// Validate returns the mistakes of values that are well formed each.
func (c *Config) Validate() []Problem {
	var ps []Problem
	add := func(path, format string, args ...any) { ps = append(ps, Problem{path, fmt.Sprintf(format, args...)}) }
	first := map[Hash]int{}
	for i, k := range c.APIKeys {
		at := fmt.Sprintf("api_keys[%d]", i)
		if k.Name == "" {
			add(at+".name", "is missing; name who has the key, such as ci")
		} else if !ValidName(k.Name) {
			add(at+".name", "want 1 to %d of A-Z, a-z, 0-9 and . _ - @, such as ci", maxName)
		}
		if k.Hash == (Hash{}) {
			add(at+".hash", "is missing; junction keys create makes a key and prints it, junction keys hash prints that of a key you have")
			continue
		}
		switch j, twice := first[k.Hash]; {
		case !twice:
			first[k.Hash] = i
		case c.APIKeys[j].Name == k.Name:
			add(at, "is api_keys[%d] again, name and hash; a second entry of one name is for a second key, so keep one", j)
		default:
			add(at+".hash", "is that of api_keys[%d] too, so that nobody could say whose the key is; give each its own", j)
		}
	}
	for i, p := range c.TrustedProxies {
		if p.IsValid() && p.Bits() == 0 {
			add(fmt.Sprintf("trusted_proxies[%d]", i), "would let everybody say where they come from; name the addresses of your proxies")
		}
	}
	return ps
}

// Guard returns the Guard of the section, which has been validated. It has no Log yet.
func (c *Config) Guard() *Guard {
	g := &Guard{}
	if len(c.APIKeys) > 0 {
		g.Verifier = Keys(c.APIKeys, nil)
	}
	for _, p := range c.TrustedProxies {
		g.TrustedProxies = append(g.TrustedProxies, p.Prefix)
	}
	return g
}

const maxName = 64

// ValidName reports whether a key may have the name.
func ValidName(s string) bool {
	if s == "" || len(s) > maxName {
		return false
	}
	for i := range len(s) {
		if !alphanumeric(s[i]) && strings.IndexByte("._-@", s[i]) < 0 {
			return false
		}
	}
	return true
}
