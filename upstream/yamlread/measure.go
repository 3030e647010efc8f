package yamlread

import (
	"reflect"
	"time"
)

// A Measure is what a limit counts.
type Measure string

// The measures. A time.Duration is MeasureTime, and a type named Size is MeasureBytes.
const (
	MeasureTime        Measure = "time"
	MeasureBytes       Measure = "bytes"
	MeasureCalls       Measure = "calls"
	MeasureConnections Measure = "connections"
	MeasureRequests    Measure = "requests" // that one call makes
	MeasureForm        Measure = "form"     // of what another limit leaves
)

// MeasureFits reports whether a field of a type may have a measure: the types of times and bytes have their own.
func MeasureFits(t reflect.Type, m Measure) bool {
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return m == MeasureTime
	case t.Name() == "Size":
		return m == MeasureBytes
	}
	return m == MeasureCalls || m == MeasureConnections || m == MeasureRequests || m == MeasureForm
}
