package authtest

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
)

// Resolver resolves names with a function, which gets them with a dot at the end. A name without
// addresses (nil) does not exist.
func Resolver(addresses func(name string) []netip.Addr) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		go func() {
			defer far.Close()
			for {
				var size [2]byte
				if _, err := io.ReadFull(far, size[:]); err != nil {
					return
				}
				query := make([]byte, binary.BigEndian.Uint16(size[:]))
				if _, err := io.ReadFull(far, query); err != nil {
					return
				}
				answer := answer(query, addresses)
				if _, err := far.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))),
					answer...)); err != nil {
					return
				}
			}
		}()
		return near, nil
	}}
}

// answer is a DNS answer to a query with one question (RFC 1035, section 4).
func answer(query []byte, addresses func(name string) []netip.Addr) []byte {
	end, name := 12, ""
	for query[end] != 0 {
		n := int(query[end])
		name += string(query[end+1:end+1+n]) + "."
		end += 1 + n
	}
	kind := binary.BigEndian.Uint16(query[end+1:])
	question := query[12 : end+5]
	var records []byte
	count := 0
	found := addresses(name)
	for _, ip := range found {
		if (kind == 1) != ip.Is4() || kind != 1 && kind != 28 {
			continue
		}
		raw := ip.AsSlice()
		records = append(records, 0xc0, 12, byte(kind>>8), byte(kind), 0, 1, 0, 0, 0, 0, 0, byte(len(raw)))
		records = append(records, raw...)
		count++
	}
	code := byte(0)
	if found == nil {
		code = 3
	}
	head := []byte{query[0], query[1], 0x81, 0x80 | code, 0, 1, 0, byte(count), 0, 0, 0, 0}
	return append(append(head, question...), records...)
}
