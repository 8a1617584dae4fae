package statussock

const contentType = "application/json"

// maxArgument is the largest argument in bytes.
const maxArgument = 64 << 10

// failure is the answer to a command that failed.
type failure struct {
	Error string `json:"error"`
}

// apiRoot is where an API is on a socket.
const apiRoot = "/v1/"

// The answer of a command that tells something for as long as it runs ends with trailers
// of HTTP: its result, or why it failed.
const (
	trailerResult = "Splitnic-Result"
	trailerError  = "Splitnic-Error"
)

// streamType is the content type of what such a command tells.
const streamType = "application/octet-stream"
