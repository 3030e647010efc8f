package raw_test

import (
	"strings"
	"testing"

	"junction/upstream/raw"
)

// TestMembersAreBounded: an object that is taken apart has a bound of members, and one that is carried
// has none.
func TestMembersAreBounded(t *testing.T) {
	object := func(n int) string { return `{` + strings.Repeat(`"":0,`, n-1) + `"":0}` }
	if o, err := raw.Parse([]byte(object(raw.MaxMembers))); err != nil || o.Len() != raw.MaxMembers {
		t.Errorf("an object of %d members has %d, and the error %v", raw.MaxMembers, o.Len(), err)
	}
	if _, err := raw.Parse([]byte(object(raw.MaxMembers + 1))); err != raw.ErrMany {
		t.Errorf("an object of a member more: %v, want ErrMany", err)
	}
	o, err := raw.Parse([]byte(`{"a":` + object(raw.MaxMembers+1) + `}`))
	if err != nil {
		t.Fatalf("an object that carries a large one: %v", err)
	}
	if _, err := o.Object("a"); err != raw.ErrMany {
		t.Errorf("the carried object: %v, want ErrMany", err)
	}
	if all, err := raw.ElementsWithin([]byte(`[1,2,3]`), 3); err != nil || len(all) != 3 {
		t.Errorf("3 elements within 3: %q, %v", all, err)
	}
	if all, err := raw.ElementsWithin([]byte(`[1,2,3,what follows is not read`), 2); err != raw.ErrMany {
		t.Errorf("3 elements within 2: %q, %v, want ErrMany", all, err)
	}
}
