package plan

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Text returns the plan for display.
func (p *Plan) Text() string {
	var b bytes.Buffer
	subject := ""
	for _, f := range p.Facts {
		if f.Subject != subject {
			subject = f.Subject
			fmt.Fprintln(&b, subject)
		}
		fmt.Fprintf(&b, "  %-14s %s\n", f.Kind, f.Detail)
	}
	b.WriteByte('\n')
	b.WriteString(p.Summary())
	return b.String()
}

// Summary returns the programs, hosts, variables and files of a plan for display.
func (p *Plan) Summary() string {
	var b bytes.Buffer
	for _, l := range []struct {
		what string
		list []string
	}{{"Programs", p.Programs}, {"URLs", p.URLs}, {"Variables of the environment", p.Variables},
		{"Content of files", p.Files}} {
		text := "none"
		if len(l.list) > 0 {
			text = strings.Join(l.list, ", ")
		}
		fmt.Fprintf(&b, "%s: %s\n", l.what, text)
	}
	return b.String()
}

// Change is a difference between two plans.
type Change struct {
	Now bool `json:"now"` // the fact is one of the new plan
	Fact
}

// Diff returns the facts of p that next lacks, and the facts of next that p lacks.
func (p *Plan) Diff(next *Plan) (changes []Change) {
	before, after := map[Fact]bool{}, map[Fact]bool{}
	for _, f := range p.all() {
		before[f] = true
	}
	for _, f := range next.all() {
		after[f] = true
	}
	for _, f := range p.all() {
		if !after[f] {
			changes = append(changes, Change{false, f})
		}
	}
	for _, f := range next.all() {
		if !before[f] {
			changes = append(changes, Change{true, f})
		}
	}
	slices.SortStableFunc(changes, func(a, b Change) int { return cmp.Compare(a.Subject, b.Subject) })
	return changes
}

// all returns the facts, and the programs, URLs, variables and files as facts.
func (p *Plan) all() []Fact {
	all := slices.Clone(p.Facts)
	for _, v := range p.Programs {
		all = append(all, Fact{"programs", "runs", v})
	}
	for _, v := range p.URLs {
		all = append(all, Fact{"hosts", "reaches", v})
	}
	for _, v := range p.Variables {
		all = append(all, Fact{"environment", "reads", v})
	}
	for _, v := range p.Files {
		all = append(all, Fact{"files", "reads", v})
	}
	return all
}

// Print returns changes for display, one in a line.
func Print(changes []Change) string {
	var b strings.Builder
	for _, c := range changes {
		sign := "-"
		if c.Now {
			sign = "+"
		}
		fmt.Fprintf(&b, "%s %s %s: %s\n", sign, c.Subject, c.Kind, c.Detail)
	}
	return b.String()
}
