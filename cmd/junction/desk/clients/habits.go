package clients

// habits are what a client says of its servers in other places than their entries, or in other words than
// most clients. A missing function stands for the habit of most clients. A file of no known client has the
// habits of the client with that form.
type habits struct {
	// keys returns the keys that lead to the servers in a text; nil for those of the place.
	keys func(text []byte) []string
	// fields brings an entry into the form of most clients, and returns the variables whose values the
	// client keeps in a keyring. keyring means that the client expands only these, and none in commands.
	fields  func(entry map[string]any) (m map[string]any, kept []string, err error)
	keyring bool
	// firstList means that timeout is the limit of the first listing, not of a call.
	firstList bool
	// settings returns further files of the client for a place.
	settings func(h Home, p Place) []map[string]any
	// off returns which servers the client disables outside of their entries.
	off func(h Home, p Place, text []byte, settings []map[string]any) func(name string) bool
	// rules returns the rules about tools of servers in a place. The last rule that matches counts.
	rules func(text []byte, settings []map[string]any) []rule
	// names returns the beginning of the names that the tools of a server have in rules, and the rule that
	// stands for all of them; "" for none. name is that of the server as rules have it.
	names func(name string) (begin, all string)
}

// orNone returns the habits with those of most clients for missing ones.
func (b habits) orNone() habits {
	if b.keys == nil {
		b.keys = func([]byte) []string { return nil }
	}
	if b.fields == nil {
		b.fields = func(entry map[string]any) (map[string]any, []string, error) { return entry, nil, nil }
	}
	if b.settings == nil {
		b.settings = func(Home, Place) []map[string]any { return nil }
	}
	if b.off == nil {
		b.off = func(Home, Place, []byte, []map[string]any) func(string) bool {
			return func(string) bool { return false }
		}
	}
	if b.rules == nil {
		b.rules = func([]byte, []map[string]any) []rule { return nil }
	}
	if b.names == nil {
		b.names = func(name string) (begin, all string) { return name + "_", "" }
	}
	return b
}
