package oddities

import (
	"strings"
	"testing"
)

// TestJudgeFindsDifferences has rows that say too much, too little or the wrong thing.
func TestJudgeFindsDifferences(t *testing.T) {
	records := func(r row, v1, v2, python string) *row {
		r.TypeScript1, r.TypeScript2, r.Python = v1, v2, python
		return &r
	}
	const more = "works: echo more: hello"
	for _, tt := range []struct {
		name string
		row  *row
		did  outcome
		want string // a part of what is wrong
	}{
		{"all work", records(row{Junction: works}, works, works, works), works, ""},
		{"none works", records(row{Junction: fails}, fails, fails, fails), fails, ""},
		{"Junction alone works", records(row{Junction: works}, fails, fails, fails), works, ""},
		{"one works as Junction does", records(row{Junction: works}, works, more, fails), more, ""},
		{"no record", records(row{Junction: works}, works, "", works), works, "nothing is recorded of typescript-2"},
		{"a reference works", records(row{Junction: fails}, fails, fails, works), fails, "make it work"},
		{"another answer", records(row{Junction: works}, works, works, works), more, "make it work"},
		{"a reason", records(row{Junction: fails, Reason: "a secret"}, works, fails, fails), fails, ""},
		{"a reason for another answer", records(row{Junction: works, Reason: "r"}, works, works, works), more, ""},
		{"a reason for nothing", records(row{Junction: works, Reason: "r"}, works, works, works), works, "there is none"},
		{"open", records(row{Open: "part 2"}, works, fails, fails), fails, ""},
		{"open with another answer", records(row{Open: "part 2"}, works, fails, fails), more, ""},
		{"open, and it works", records(row{Open: "part 2"}, works, fails, fails), works, "not open any more"},
		{"no longer", records(row{Junction: works}, fails, fails, fails), fails + ": it is late", "it is late"},
		{"it works now", records(row{Junction: fails}, fails, fails, fails), works, "Junction fails according to the row"},
		{"other words", records(row{Junction: fails, Says: "why"}, fails, fails, fails), fails, "does not contain"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := tt.row.judge(tt.did)
			if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
				t.Errorf("judge(%q) = %q, want %q", tt.did, got, tt.want)
			}
		})
	}
}
