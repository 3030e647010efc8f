package format

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/tailscale/hujson"
)

// Items returns the list below a key of the root. present is false if the text has no such key.
func (f JSON) Items(text []byte, key string) (items []any, present bool, err error) {
	_, body := split(text)
	tree, err := f.Decode(body)
	if err != nil {
		return nil, false, err
	}
	root, _ := tree.(map[string]any)
	value, present := root[key]
	items, ok := value.([]any)
	if present && !ok {
		return nil, true, &SyntaxError{Err: fmt.Errorf("the value of %s is not a list; replace it by []", key)}
	}
	return items, present, nil
}

// AddItem puts an object at the end of the list below a key of the root. It creates the list if
// necessary.
func (f JSON) AddItem(text []byte, key string, item Object) ([]byte, error) {
	items, present, err := f.Items(text, key)
	if err != nil {
		return nil, err
	}
	return f.editList(text, key, append(items, any(item.Tree())), func(body []byte, root *hujson.Value) error {
		if !present {
			at, _, err := find(root, nil)
			if err != nil {
				return err
			}
			styleOf(body).insert(at.Value.(*hujson.Object), "", Member{key, []Object{item}})
			return nil
		}
		list, outer, err := listOf(body, root, key)
		if err != nil {
			return err
		}
		o := asObject(list)
		styleOf(body).insert(o, outer, Member{key, item})
		fromObject(list, o)
		return nil
	})
}

// RemoveItem takes an item out of the list below a key of the root. With whole, it removes the key with
// the last item.
func (f JSON) RemoveItem(text []byte, key string, i int, whole bool) ([]byte, error) {
	items, _, err := f.Items(text, key)
	if err != nil {
		return nil, err
	}
	if i < 0 || i >= len(items) {
		return nil, fmt.Errorf("%s has no item %d", key, i)
	}
	left := slices.Delete(items, i, i+1)
	whole = whole && len(left) == 0
	if whole {
		left = nil
	}
	return f.editList(text, key, left, func(body []byte, root *hujson.Value) error {
		if whole {
			o := root.Value.(*hujson.Object) // editList has found a list in it
			at, err := indexOf(o, key)
			if err != nil {
				return err
			}
			cut(o, at)
			return nil
		}
		list, _, err := listOf(body, root, key)
		if err != nil {
			return err
		}
		o := asObject(list)
		cut(o, i)
		fromObject(list, o)
		return nil
	})
}

// editList changes a text, and makes sure that the list below a key has the items want, or is gone if
// that is nil, and that everything else means the same.
func (f JSON) editList(text []byte, key string, want []any,
	change func(body []byte, root *hujson.Value) error) ([]byte, error) {
	mark, body := split(text)
	was, err := f.Decode(body)
	if err != nil {
		return nil, err
	}
	root, err := parseJSON(body)
	if err != nil {
		return nil, err
	}
	if err := change(root.Pack(), root); err != nil {
		return nil, err
	}
	body = root.Pack()
	is, err := f.Decode(body)
	if err != nil {
		return nil, fmt.Errorf("cannot edit the file: %w", err)
	}
	tree, ok := was.(map[string]any)
	if !ok {
		return nil, errors.New("cannot edit the file: it has no object at the root")
	}
	if delete(tree, key); want != nil {
		tree[key] = want
	}
	if !reflect.DeepEqual(was, is) {
		return nil, errors.New("cannot edit the file without changing something else; edit it by hand")
	}
	return slices.Concat(mark, body), nil
}

// listOf returns the list below a key of the root, and the indentation of the line on which it begins.
func listOf(body []byte, root *hujson.Value, key string) (*hujson.Array, string, error) {
	o, ok := root.Value.(*hujson.Object)
	if !ok {
		return nil, "", &SyntaxError{Err: errors.New("has no object at the root; begin the file with {")}
	}
	i, err := indexOf(o, key)
	if err != nil {
		return nil, "", err
	}
	value := &o.Members[i].Value
	list, ok := value.Value.(*hujson.Array)
	if !ok {
		return nil, "", fmt.Errorf("the value of %s is not a list", key)
	}
	return list, indentOf(body, value.StartOffset), nil
}

// asObject returns a list as an object, so that one code edits both: the space and the comments before an
// item are those before a name.
func asObject(list *hujson.Array) *hujson.Object {
	o := &hujson.Object{AfterExtra: list.AfterExtra}
	for _, item := range list.Elements {
		name := hujson.Value{BeforeExtra: item.BeforeExtra, Value: hujson.String("")}
		item.BeforeExtra = nil
		o.Members = append(o.Members, hujson.ObjectMember{Name: name, Value: item})
	}
	return o
}

// fromObject is the way back from asObject.
func fromObject(list *hujson.Array, o *hujson.Object) {
	list.Elements, list.AfterExtra = nil, o.AfterExtra
	for _, m := range o.Members {
		m.Value.BeforeExtra = m.Name.BeforeExtra
		list.Elements = append(list.Elements, m.Value)
	}
}
