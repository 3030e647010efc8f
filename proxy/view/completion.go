package view

import (
	"strings"

	"junction/policy"
	"junction/upstream"
	"junction/upstream/raw"
)

// Completion decides which values of a template's variable complete to resources that the rights
// allow.
type Completion struct {
	Rights   *policy.Rights
	Target   *Target // of the template
	Template Expansion
	Values   map[string]string // known values of the template's variables
	Argument string            // the variable to complete
}

// Read reads the argument to complete and the values of other variables from the params. missing is
// the name of a missing member; "" if there is none.
func (c *Completion) Read(params raw.Object) (missing string, err error) {
	argument, err := params.Object("argument")
	if err != nil && err != raw.ErrAbsent {
		return "", err
	}
	if c.Argument, err = argument.String("name"); err == raw.ErrAbsent {
		return "argument.name", nil
	} else if err != nil {
		return "", err
	}
	value, err := argument.String("value")
	if err == raw.ErrAbsent {
		return "argument.value", nil
	} else if err != nil {
		return "", err
	}
	others, err := params.Object("context")
	if err == nil {
		others, err = others.Object("arguments")
	}
	if err != nil && err != raw.ErrAbsent {
		return "", err
	}
	c.Values = map[string]string{}
	for _, p := range c.Template {
		for _, v := range p.Variables {
			name := VariableName(v)
			switch text, err := others.String(name); {
			case err == nil:
				c.Values[name] = text
			case err != raw.ErrAbsent:
				return "", err
			}
		}
	}
	c.Values[c.Argument] = value
	return "", nil
}

// Beginning returns the possible verdicts about resources whose own URI begins with this text.
func (c *Completion) Beginning(own string) policy.Verdicts {
	t := NewResource(c.Target.Backend, own, own, c.Target.Bare)
	item := t.PolicyItem()
	if i := strings.IndexByte(own, ':'); i < 0 || len(own) < i+len("://") {
		item.Names = item.Names[:1] // the scheme may be incomplete, so the exposed URI is unknown
	}
	return c.Rights.Beginning(item)
}

// Allows reports whether the caller may read the template's expansion with this value.
func (c *Completion) Allows(value string) bool {
	c.Values[c.Argument] = value
	text, whole, _ := c.Template.Expand(c.Values, "")
	if !whole {
		return c.Beginning(text).Only(policy.Allow)
	}
	t := NewResource(c.Target.Backend, text, text, c.Target.Bare)
	d, err := c.Rights.Bind(t.PolicyItem()).Decide(raw.Object{})
	return err == nil && d.Verdict.Allows()
}

// ListsTemplate reports whether the catalog lists the template.
func ListsTemplate(c *upstream.Catalog, uri string) bool {
	for n := range c.Items(upstream.PartTemplates) {
		if c.Item(upstream.PartTemplates, n).Name == uri {
			return true
		}
	}
	return false
}
