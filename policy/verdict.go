package policy

// Verdict is the result of a rule or of a decision.
type Verdict uint8

// Stricter verdicts are smaller. The zero value denies.
const (
	Deny Verdict = iota
	Ask
	Allow
)

// verdicts has a row for each verdict, by its value.
var verdicts = [...]verdictRow{
	Deny:  {word: "deny", selector: func(r *Rule) *Selector { return r.Deny }, doubts: true},
	Ask:   {word: "ask", selector: func(r *Rule) *Selector { return r.Ask }, calls: true, asks: true, doubts: true},
	Allow: {word: "allow", selector: func(r *Rule) *Selector { return r.Allow }, calls: true},
}

// A verdictRow has the facts of a verdict.
type verdictRow struct {
	word     string // in the file, the audit and messages; also the key of the rule
	selector func(*Rule) *Selector
	calls    bool // calls may be made
	asks     bool // the user at the client approves a call first
	// doubts means that a rule also selects what it cannot judge: a value of another type, and an ambiguous
	// URI in any of its readings.
	doubts bool
}

// row returns the facts; those of Deny for a value without a row.
func (v Verdict) row() verdictRow {
	if int(v) >= len(verdicts) {
		return verdicts[Deny]
	}
	return verdicts[v]
}

func (v Verdict) String() string { return v.row().word }

// Denies reports whether calls are rejected.
func (v Verdict) Denies() bool { return !v.row().calls }

// Asks reports whether calls are made after the user has approved them.
func (v Verdict) Asks() bool { return v.row().asks }

// Allows reports whether calls are made without a question.
func (v Verdict) Allows() bool { row := v.row(); return row.calls && !row.asks }

// doubts reports whether rules with the verdict also select what they cannot judge.
func (v Verdict) doubts() bool { return v.row().doubts }

// VerdictOf returns the verdict with a word; false if there is none.
func VerdictOf(word string) (Verdict, bool) {
	for v := range verdicts {
		if verdicts[v].word == word {
			return Verdict(v), true
		}
	}
	return Deny, false
}
