package statussock

const contentType = "application/json"

// maxArgument is the largest argument in bytes.
const maxArgument = 64 << 10

// failure is the answer to a command that failed.
type failure struct {
	Error string `json:"error"`
}

// apiRoot is the path of an API on a socket.
const apiRoot = "/v1/"

// The answer of a command with output while it runs (RunTo) ends with HTTP trailers: the result,
// or the error.
const (
	trailerResult = "Splitnic-Result"
	trailerError  = "Splitnic-Error"
)

// streamType is the content type of the output of such a command.
const streamType = "application/octet-stream"
