package clients

// KeyVariable is the environment variable that holds the API key for Junction.
const KeyVariable = "JUNCTION_KEY"

// A Target is what the entry of Junction in a client's file says.
type Target struct {
	Name string
	URL  string
	Key  bool // the endpoint wants an API key
}
