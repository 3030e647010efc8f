package bridge

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"junction/integration/harness"
	"junction/upstream/client"
	"junction/upstream/upstreamtest"
)

// TestServerRejectsItsState has a modern server reject the answers to its questions, because of its
// own requestState. The client gets the server's text with each code and status, and code and data
// unless they have another meaning between Junction and the client.
func TestServerRejectsItsState(t *testing.T) {
	harness.Waits(t)
	const text = "requestState has expired: begin the booking again"
	const data = `{"reason":"invalid_request_state"}`
	for _, era := range harness.Eras {
		harness.EachTransport(t, era, client.EraModern, func(t *testing.T, p harness.Pair) {
			_, j := harness.Over(t, p, upstreamtest.Script{}, nil)
			c := j.Talk(t)
			for _, status := range []int{200, 400, 401, 403, 404, 409, 410, 422, 500} {
				for _, code := range []int64{-32602, -32600, -32603, -32000, -32002, -32042, 7} {
					m, asked := c.Converse(t, harness.Called("up__ask", fmt.Sprintf(`{"code":%d,"questions":[%s],`+
						`"error":{"code":%d,"message":"%s","data":%s}}`, status, harness.AskForm, code, text, data)),
						harness.AnswersTo)
					got := m.Append(nil)
					if m.Error == nil || len(asked) != 1 || !strings.Contains(m.Error.Message, text) {
						t.Errorf("%d %d: after %d questions %s, want the text of the server", status, code, len(asked), got)
						continue
					}
					translated := code == -32002 || code == -32042 || p.Transport == "http" &&
						(status == http.StatusUnauthorized || status == http.StatusForbidden)
					if !translated && (m.Error.Code != code || m.Error.Message != text || string(m.Error.Data) != data) {
						t.Errorf("%d %d: %s, want the error of the server", status, code, got)
					}
				}
			}
		})
	}
}
