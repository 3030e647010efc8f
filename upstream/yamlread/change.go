package yamlread

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// A Change says what a changed value of a key needs while a proxy runs. It is the tag change of the
// field: the cost, and after a comma what a reload does that is refused in part. `change:"inside"` means
// that each key below has a tag of its own, and `change:"restart"` needs no second word.
type Change struct {
	Cost   Cost
	Partly Partly
}

// Cost is what a changed value needs to take effect.
type Cost string

// The costs, from the cheapest one.
const (
	CostInside     Cost = "inside"     // each key below has a cost of its own
	CostCall       Cost = "call"       // nothing: the next call or request uses it
	CostList       Cost = "list"       // the lists that clients have read are no longer true
	CostConnection Cost = "connection" // the connections of the upstream are opened again
	CostRestart    Cost = "restart"    // the old value stays until a restart
)

// Partly is what the changed value does if the reload is refused in part, so that two files decide.
type Partly string

// What a reload does that is refused in part.
const (
	PartlyWaits   Partly = "waits"   // the old value stays until the file can be loaded as a whole
	PartlyBoth    Partly = "both"    // the values of both files decide, and the stricter one counts
	PartlyNeither Partly = "neither" // the key decides who comes in: an entry that differs is not in force
)

// Among is whether members over one database may have different values of a key. It is the tag members
// of the field. A key without the tag has that of the section around it, and a key of an entry is hard.
type Among string

// The words of the tag members.
const (
	AmongHard  Among = "hard"  // a member with another value cannot join
	AmongSteps Among = "steps" // each entry is compared; a member offers those that all living members accept
	AmongRolls Among = "rolls" // members differ while a change is rolled out, and a warning says so
	AmongHot   Among = "hot"   // each member has a value of its own
)

// ChangeOf returns the tag change of a field; ok is false if the field has none. A tag with a mistake is
// an error.
func ChangeOf(field reflect.StructField) (c Change, ok bool, err error) {
	tag, ok := field.Tag.Lookup("change")
	if !ok {
		return Change{}, false, nil
	}
	cost, partly, second := strings.Cut(tag, ",")
	c = Change{Cost(cost), Partly(partly)}
	wants := !slices.Contains([]Cost{CostInside, CostRestart}, c.Cost)
	key, _, _ := strings.Cut(field.Tag.Get("yaml"), ",")
	isKey := key != "" && key != "-"
	switch {
	case !slices.Contains([]Cost{CostInside, CostCall, CostList, CostConnection, CostRestart}, c.Cost),
		second && !slices.Contains([]Partly{PartlyWaits, PartlyBoth, PartlyNeither}, c.Partly),
		isKey && second != wants, !isKey && second:
		return c, true, fmt.Errorf("the field %s has change:%q; write a cost of package yamlread, and for a key "+
			"what a partial reload does", field.Name, tag)
	}
	return c, true, nil
}

// AmongOf returns the tag members of a field; "" for none. A tag with a mistake is an error.
func AmongOf(field reflect.StructField) (Among, error) {
	among := Among(field.Tag.Get("members"))
	if !slices.Contains([]Among{"", AmongHard, AmongSteps, AmongRolls, AmongHot}, among) {
		return among, fmt.Errorf("the field %s has members:%q; write hard, steps, rolls or hot", field.Name, among)
	}
	return among, nil
}
