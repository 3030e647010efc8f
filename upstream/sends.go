package upstream

import (
	"slices"
	"strings"
)

// sending is what requests to a server have, beside the credential of auth: a row for each key of an entry.
type sending struct {
	key  string
	what func(c *Config) string // in a sentence, without values; "" if the entry has it not
}

// sends are the rows.
var sends = []sending{
	{"forward_headers", func(c *Config) string {
		if len(c.ForwardHeaders) == 0 {
			return ""
		}
		return "a call has the headers " + strings.Join(c.ForwardHeaders, ", ") +
			" of its client, if the client sends them"
	}},
	{"identity", func(c *Config) string {
		if !c.Signs() {
			return ""
		}
		claims := []string{"sub"}
		for _, claim := range c.Identity.Claims {
			claims = append(claims, string(claim))
		}
		return "a call has a signed statement about its caller in the header " + IdentityHeader +
			", for the audience " + c.Identity.Audience + ", with " + strings.Join(claims, ", ")
	}},
	{"tls", func(c *Config) string {
		if c.TLS.CertFile == "" {
			return ""
		}
		return "the connection shows the certificate in " + c.TLS.CertFile
	}},
}

// Sends returns what requests to the server have beside the credential of auth: a sentence for each key, which it
// names, and no value.
func (c *Config) Sends() (list []string) {
	for _, row := range sends {
		if what := row.what(c); what != "" {
			list = append(list, what+" ("+row.key+")")
		}
	}
	return slices.Clip(list)
}
