package config

import (
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"junction/auth/store"
	"junction/upstream/prose"
)

// Replicas is the file's replicas section: several processes over one database serve the same
// endpoints, behind a load balancer without sticky sessions. Each process that has a session gets
// the requests of that session from the others.
type Replicas struct {
	// For the other processes. Only processes with a key of sessions.key_file can connect.
	//
	// Connections are encrypted. Default: none, which means one process.
	Listen string `yaml:"listen" example:"0.0.0.0:8422"`
	// The address by which the other processes reach this one; in Kubernetes "${POD_IP}:8422".
	//
	// A host or IP address with a port; port 0 means the port of listen. Required with listen.
	Advertise string `yaml:"advertise" example:"\"${POD_IP}:8422\""`
}

// On reports whether there may be other processes.
func (r Replicas) On() bool { return r.Listen != "" }

// validateReplicas adds to d the mistakes in the section replicas, and in the sections that it needs.
func (c *Config) validateReplicas(d *decoder) {
	r := c.Replicas
	switch _, _, problem := splitAddress(r.Listen, "0.0.0.0:8422"); {
	case d.broken("replicas"):
		return
	case r.Listen == "" && r.Advertise != "" && !d.broken("replicas.listen"):
		d.invalid("replicas", "needs listen, the address for the other processes, such as listen: 0.0.0.0:8422; "+
			"remove the section if there is one process")
		return
	case r.Listen == "":
		return
	case problem != "":
		d.check("replicas.listen", problem)
	default:
		c.checkPort(d, "replicas.listen", r.Listen)
	}
	if d.has("replicas.advertise") {
		d.check("replicas.advertise", advertiseProblem(r.Advertise))
	} else {
		d.invalid("replicas", "needs advertise, the address by which the other processes reach listen, such as "+
			`advertise: "${POD_IP}:8422"`)
	}
	if c.Storage.Driver != store.Postgres && !d.broken("storage.driver") && !d.broken("storage") {
		d.invalid("replicas", "needs one database for all processes; set storage: { driver: postgres, "+
			`dsn: "${DATABASE_URL}" }`)
	}
	if _, given := d.refs.getenv(MasterKeys); c.Storage.KeyFile == "" && !given && !d.broken("storage.key_file") {
		d.invalid("replicas", "needs the same master keys in all processes; set the variable %s, or storage.key_file",
			MasterKeys)
	}
	if c.Sessions.KeyFile == "" && !d.broken("sessions.key_file") && !d.broken("sessions") {
		d.invalid("replicas", "needs the same key of sessions in all processes; set sessions.key_file to a file with "+
			"the output of openssl rand -base64 32")
	}
}

// warnStateful warns once of all commands that do not declare whether they keep state in their
// process: with several processes, each starts them.
func (c *Config) warnStateful(warn func(path, format string, args ...any)) {
	if !c.Replicas.On() {
		return
	}
	var names []string
	for _, name := range slices.Sorted(maps.Keys(c.Upstreams)) {
		u := c.Upstreams[name]
		// a pack keeps no state, and neither does the demo
		if u.Program() != "" && u.Program() != Self && c.Packs[name] == "" && !u.Off() && u.Stateful == nil {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return
	}
	warn("replicas", "each replica starts its own process of %s, and the calls of one client reach all replicas. A "+
		"server that keeps something in its process between calls, such as a browser or a shell, needs "+
		"stateful: true; write stateful: false for a server that keeps nothing, which ends this warning",
		strings.Join(names, ", "))
}

// placeholder stands for the name of this process in audit.file.
const placeholder = "{replica}"

// named replaces the placeholder in a path by the address of this process among the others, which is the
// same after a restart, with - in place of characters that a name of a file cannot have. Otherwise it
// returns a problem.
func (r Replicas) named(path string) (file, problem string) {
	if !strings.Contains(path, placeholder) {
		return path, ""
	}
	_, port, err := net.SplitHostPort(r.Advertise)
	switch {
	case !r.On():
		return path, placeholder + " is the address of the section replicas, which is missing; write a name without it"
	case err != nil: // has been reported
		return path, ""
	case port == "0":
		return path, placeholder + " needs a port in replicas.advertise that stays the same"
	}
	name := strings.Map(func(c rune) rune {
		if strings.ContainsRune("[]:%/\\", c) {
			return '-'
		}
		return c
	}, r.Advertise)
	return strings.ReplaceAll(path, placeholder, name), ""
}

// advertiseProblem returns why other processes cannot reach an address, or "".
func advertiseProblem(address string) string {
	const want = "the host and port by which other processes reach replicas.listen, such as 10.1.2.3:8422"
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		if strings.Count(address, ":") > 1 {
			return "must be " + want + "; an IPv6 address stands in brackets: \"[${POD_IP}]:8422\""
		}
		return "must be " + want
	}
	ip, err := netip.ParseAddr(host)
	if _, bad := strconv.ParseUint(port, 10, 16); bad != nil || hostProblem(host) != "" && err != nil {
		return "must be " + want
	}
	if err == nil && ip.IsUnspecified() {
		return prose.Quote(host) + " is no address of this machine that others can connect to; write " + want
	}
	return ""
}
