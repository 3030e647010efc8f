package view

import "io"

// Definitions are items of a list. Commas are added when they are written.
type Definitions struct {
	List [][]byte
	Size int // bytes with commas
}

func (d *Definitions) add(text []byte) {
	if len(d.List) > 0 {
		d.Size++
	}
	d.List = append(d.List, text)
	d.Size += len(text)
}

// Each returns the items that f returns for these items, without those for which ok is false.
func (d *Definitions) Each(f func(text []byte) (now []byte, ok bool)) (all Definitions) {
	for _, text := range d.List {
		if now, ok := f(text); ok {
			all.add(now)
		}
	}
	return all
}

// AppendTo appends the items with commas to b.
func (d *Definitions) AppendTo(b []byte) []byte {
	for i, text := range d.List {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, text...)
	}
	return b
}

// WriteTo writes the items with commas and combines small ones in buffer. It ignores write errors,
// because they cannot be reported to the client.
func (d *Definitions) WriteTo(w io.Writer, buffer *[]byte) {
	const together = 32 << 10
	b := (*buffer)[:0]
	for i, text := range d.List {
		if i > 0 {
			b = append(b, ',')
		}
		if len(b)+len(text) > together {
			w.Write(b)
			b = b[:0]
		}
		if len(text) > together {
			w.Write(text)
			continue
		}
		b = append(b, text...)
	}
	w.Write(b)
	*buffer = b
}
