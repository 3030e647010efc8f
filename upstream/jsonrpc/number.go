package jsonrpc

import (
	"bytes"
	"strconv"
	"strings"

	"junction/upstream/raw"
)

// This file compares whole numbers that different programs write differently.

// isInteger reports whether a JSON value is an integer as JSON Schema defines it: 1, 1.0 and 1e2
// are, 1.5 is not. Both TypeScript SDKs and mcp-go accept the same ids.
func isInteger(value []byte) bool {
	if value[0] != '-' && (value[0] < '0' || value[0] > '9') {
		return false
	}
	if !bytes.ContainsAny(value, ".eE") {
		return true
	}
	digits, exponent := decimal(string(value))
	return digits == "" || exponent >= 0
}

// decimal returns a JSON number as digits times a power of ten, without its sign. The digits neither
// begin nor end with 0; they are "" for zero.
func decimal(number string) (digits string, exponent int) {
	mantissa, power, _ := strings.Cut(strings.ToLower(strings.TrimPrefix(number, "-")), "e")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	all := whole + fraction
	digits = strings.TrimRight(all, "0")
	switch e, err := strconv.ParseInt(power, 10, 31); {
	case err == nil || power == "":
		exponent = int(e) - len(fraction) + len(all) - len(digits)
	case power[0] == '-': // beyond the range
		exponent = -mostExponent
	default:
		exponent = mostExponent
	}
	return strings.TrimLeft(digits, "0"), exponent
}

const mostExponent = 1 << 30

// mostDigits is the most characters of a text that Value reads, and of its result.
const mostDigits = 20

// Value returns the whole number that an id or a progress token stands for, in digits: 1 for "1", 1.0
// and 1e0. Some servers return Junction's numbers in such a form. It returns "" for any other value,
// and for a longer text than a number of Junction needs.
//
// Two ids of one value may belong to two requests of a client. So Value must only be used to find a
// request with an id of Junction's own, and only if no request has the text itself.
func (id ID) Value() ID {
	text := string(id)
	if len(text) > 2 && text[0] == '"' {
		text = text[1 : len(text)-1]
	}
	if text == "" || len(text) > mostDigits || text[0] != '-' && (text[0] < '0' || text[0] > '9') {
		return ""
	}
	if number, err := raw.Scan([]byte(text), 1); err != nil || len(number) < len(text) { // of a string
		return ""
	}
	digits, exponent := decimal(text)
	switch {
	case digits == "":
		return "0"
	case exponent < 0 || len(digits)+exponent > mostDigits:
		return ""
	}
	digits += strings.Repeat("0", exponent)
	if text[0] == '-' {
		digits = "-" + digits
	}
	return ID(digits)
}
