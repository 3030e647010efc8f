// Package errorsx stands for the package of that name in github.com/ory/x, as far as fosite uses it: see go.mod.
package errorsx

// WithStack returns err. The original adds the stack, which nobody here prints.
func WithStack(err error) error { return err }

// Cause returns the error that the others are wrapped around, as far as they tell by a method Cause.
func Cause(err error) error {
	for {
		c, ok := err.(interface{ Cause() error })
		if !ok || c.Cause() == nil {
			return err
		}
		err = c.Cause()
	}
}

// What fosite's errors tell of themselves.
type (
	StatusCodeCarrier interface{ StatusCode() int }
	RequestIDCarrier  interface{ RequestID() string }
	ReasonCarrier     interface{ Reason() string }
	DebugCarrier      interface{ Debug() string }
	StatusCarrier     interface{ Status() string }
	DetailsCarrier    interface{ Details() map[string]any }
)
