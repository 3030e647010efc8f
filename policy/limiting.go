package policy

// Limiting is a limit of a subject, and the policy that gives it.
type Limiting struct {
	Key    string `json:"key"`    // such as limits.rate
	Value  string `json:"value"`  // as in the file
	Policy string `json:"policy"` // the first one, if several give the same value
}

// Limiting returns the limits of the subject with the policies that give them.
func (r *Rights) Limiting() (list []Limiting) {
	add := func(key, value string, gives func(l Limits) bool) {
		if value == "" {
			return
		}
		for e := range r.all {
			if gives(e.limits) {
				list = append(list, Limiting{"limits." + key, value, e.name})
				return
			}
		}
	}
	is := r.limits
	add("rate", Notation(is.Rate), func(l Limits) bool { return l.Rate == is.Rate })
	add("burst", Notation(is.Burst), func(l Limits) bool { return l.Burst == is.Burst })
	add("concurrent", Notation(is.Concurrent), func(l Limits) bool { return l.Concurrent == is.Concurrent })
	return list
}

// LimitedBy returns the policy that gives a limit, such as limits.rate; "" if none does.
func (r *Rights) LimitedBy(key string) string {
	for _, l := range r.Limiting() {
		if l.Key == key {
			return l.Policy
		}
	}
	return ""
}
