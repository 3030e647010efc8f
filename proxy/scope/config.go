package scope

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"junction/auth"
	"junction/policy"
	"junction/proxy/pins"
	"junction/proxy/view"
	"junction/upstream/folder"
)

// Config is the part of the configuration that a reload can change.
type Config struct {
	Names          view.Names
	Endpoints      map[string]EndpointConfig
	Guard          *auth.Guard    // nil rejects every request
	Policy         *policy.Policy // nil allows nothing
	Pins           *pins.Pins     // for pinned policies; nil hides all their tools
	People         People         // nil: no user signs in to an upstream
	FirstWait      time.Duration  // of tools/list for servers that are starting; 0 is 1s
	AllowedOrigins []string       // in addition to loopback origins, which are allowed if the Guard has a Verifier
	AllowedHosts   []string       // in addition to loopback hosts
	Folders        *folder.Guard  // of clients; nil permits none
	BehindProxy    bool           // accepts headers of a proxy although the Guard has no Verifier
}

// EndpointConfig is an entry of the endpoints section: the URL /NAME/mcp with its own upstreams, merged,
// and its own policies.
type EndpointConfig struct {
	// The names of its upstreams. Default: all.
	Upstreams []string `yaml:"upstreams" change:"list,both"`
	// A word that policies match. Default: the name of the endpoint.
	Surface string `yaml:"surface" change:"list,neither"`
	// Who may use the endpoint, as match in policies, without surface. It does not exist for
	// others.
	Match *policy.Match `yaml:"match" change:"list,neither"`
	// full or search, as in policies. Default full.
	//
	// full lists all tools. search lists search_tools, the tools call_read_tool, call_write_tool
	// and call_destructive_tool, and those of always, for clients that cannot handle many tools and
	// do not search by themselves.
	Catalog policy.Catalog `yaml:"catalog" change:"list,waits"`
	// legacy or modern, for clients that mix the eras in one request and get -32020. Default both.
	//
	// The endpoint reads such a request as one of its own era, and answers requests of the other
	// era as a server of one era does.
	Eras Eras `yaml:"eras" change:"list,waits"`
	// The tools that stay listed with catalog: search.
	//
	// Globs, as in policies.
	Always policy.List `yaml:"always" change:"list,waits"`
}

// Eras is a word of the file.
type Eras string

// The eras in which an endpoint answers.
const (
	ErasBoth   Eras = ""
	ErasLegacy Eras = "legacy"
	ErasModern Eras = "modern"
)

// Words returns the words of the file; the first one is ErasBoth.
func (Eras) Words() []string { return []string{"both", string(ErasLegacy), string(ErasModern)} }

// UnmarshalText rejects unknown words.
func (e *Eras) UnmarshalText(text []byte) error {
	switch i := slices.Index(e.Words(), string(text)); {
	case i < 0:
		return fmt.Errorf("%.40q is none of %s", text, strings.Join(e.Words(), ", "))
	case i == 0:
		*e = ErasBoth
	default:
		*e = Eras(text)
	}
	return nil
}
