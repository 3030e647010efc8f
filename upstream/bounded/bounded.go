// Package bounded limits the memory of data that can be made or asked for again. It is the one place
// for maps that drop entries; it imports no other package of Junction, and all of them may use it.
//
//   - [Put] adds to a map whose entries all count the same. The lock of the caller guards the map, so
//     that a reader needs only a read lock, and other fields can change together with the map.
//   - [Shared] is such a map whose entries have owners: an owner with the most entries loses its oldest.
//   - [Cache] counts bytes. Several caches of different types share the bytes of one [Room].
//
// Not here are limits that refuse a request or put it into a common account instead of dropping an
// entry: those protect their entries.
//
// Why not github.com/hashicorp/golang-lru/v2 (v2.0.7 of 2023): an entry costs one allocation and more
// than twice the memory of a map's, which counts for the map of each session; its variant with
// expiry runs a goroutine that never ends; and it bounds neither bytes nor several caches together.
package bounded

// looked bounds the entries that Put looks at.
const looked = 16

// Put sets a key of the map, and makes the map if it is nil. If the key is new, Put first removes a
// few random entries that have ended, and then random others until the map has fewer than most
// entries. A nil function means that no entry ends.
func Put[M ~map[K]V, K comparable, V any](m *M, most int, key K, value V, ended func(V) bool) {
	if *m == nil {
		*m = M{}
	}
	if _, known := (*m)[key]; !known {
		makeRoom(*m, most, ended)
	}
	(*m)[key] = value
}

func makeRoom[M ~map[K]V, K comparable, V any](m M, most int, ended func(V) bool) {
	seen := 0
	for other, v := range m {
		over := ended != nil && ended(v)
		if over {
			delete(m, other)
		}
		if seen++; seen == looked || !over && len(m) < most {
			break
		}
	}
	for other := range m {
		if len(m) < most {
			break
		}
		delete(m, other)
	}
}
