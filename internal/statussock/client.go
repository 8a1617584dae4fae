package statussock

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"syscall"
	"time"
)

// ErrNobody is wrapped by errors of Read and Do about a socket that is missing,
// or left over.
var ErrNobody = errors.New("no process serves")

// ErrLeft is wrapped, beside ErrNobody, by errors of Read and Do about a socket that is left
// over: its process was killed.
var ErrLeft = errors.New("the process that made this socket was killed; start it again, or remove the socket")

// ErrSilent is wrapped by errors of Read and Do about a process that does not answer: it is
// stopped, or hangs.
var ErrSilent = errors.New("no answer")

// ErrUnknown is wrapped by errors of Do about a command that the daemon does
// not have.
var ErrUnknown = errors.New("the process there has no such command")

// patience is how long a process may take to return its status. A process that works takes some
// milliseconds.
const patience = 5 * time.Second

// Read fetches the status from the socket at path, or gives up after some seconds: a stopped
// process must not prevent a user from querying the others.
func Read(ctx context.Context, path string) (json.RawMessage, error) {
	raw, err := read(ctx, path, patience)
	if err != nil {
		return nil, fmt.Errorf("status: %w", err)
	}
	return raw, nil
}

func read(ctx context.Context, path string, patience time.Duration) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, silence(patience))
	defer cancel()
	raw, err := ask(ctx, path, http.MethodGet, "/status", nil)
	return raw, silent(ctx, path, err)
}

// Do makes the daemon at path execute a command, and returns the answer.
func Do(ctx context.Context, path, command string) (json.RawMessage, error) {
	return do(ctx, path, command, nil)
}

// DoWith is Do with an argument, which is encoded as JSON.
func DoWith(ctx context.Context, path, command string, argument any) (json.RawMessage, error) {
	raw, err := json.Marshal(argument)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", command, err)
	}
	return do(ctx, path, command, raw)
}

func do(ctx context.Context, path, command string, argument []byte) (raw json.RawMessage, err error) {
	if err = answers(ctx, path); err == nil {
		raw, err = ask(ctx, path, http.MethodPost, "/command/"+command, argument)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", command, err)
	}
	return raw, nil
}

// answers returns an error if the process at path is stopped or hangs. A command may take long, but
// not for this reason.
func answers(ctx context.Context, path string) error {
	if _, err := read(ctx, path, patience); errors.Is(err, ErrSilent) {
		return err
	}
	return nil
}

// Call sends a request to the API of the daemon at path, and returns the HTTP status and the JSON
// of the answer. If the daemon has no API the error wraps ErrUnknown. Call waits until ctx is
// done, but for patience at most. After that the error wraps ErrSilent.
func Call(
	ctx context.Context, path, method, what string, body []byte, patience time.Duration,
) (status int, raw json.RawMessage, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, silence(patience))
	defer cancel()
	status, raw, err = call(ctx, path, method, what, body)
	return status, raw, silent(ctx, path, err)
}

// silence returns the error about a process that does not answer within patience.
func silence(patience time.Duration) error { return fmt.Errorf("%w within %v", ErrSilent, patience) }

// silent explains err if the cause of ctx is ErrSilent, and returns other errors unchanged.
func silent(ctx context.Context, path string, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), ErrSilent) {
		return fmt.Errorf("%s: %w; the process there is stopped or hangs (`ss -xlp` shows which it is)",
			path, context.Cause(ctx))
	}
	return err
}

// ask sends one request to the socket at path.
func ask(ctx context.Context, path, method, what string, body []byte) (json.RawMessage, error) {
	status, raw, err := call(ctx, path, method, what, body)
	if err == nil && status != http.StatusOK {
		err = failed(path, raw)
	}
	if err != nil {
		return nil, err
	}
	return raw, nil
}

// FailedError is the error that a daemon has answered with, at once or at the end of a stream. Errors of
// Do, DoWith and Stream wrap it.
type FailedError struct{ text string }

func (e *FailedError) Error() string { return e.text }

// failed returns the error that a daemon has answered with.
func failed(path string, raw json.RawMessage) error {
	var f failure
	err := json.Unmarshal(raw, &f)
	if err == nil {
		err = &FailedError{f.Error}
	}
	return fmt.Errorf("%s: %w", path, err)
}

// send sends one request to the socket at path, over a connection of its own.
func send(ctx context.Context, path, method, what string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://splitnic"+what, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}
	client := http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return nil, unanswered(path, err)
	}
	return resp, nil
}

// call sends one request to the socket at path. An answer "not found" that is not in JSON means
// that the daemon does not have what: the error wraps ErrUnknown.
func call(ctx context.Context, path, method, what string, body []byte) (status int, raw json.RawMessage, err error) {
	resp, err := send(ctx, path, method, what, body)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	raw, err = answer(path, resp)
	return resp.StatusCode, raw, err
}

// answer returns the JSON of a daemon's answer.
func answer(path string, resp *http.Response) (raw json.RawMessage, err error) {
	if resp.StatusCode == http.StatusNotFound && resp.Header.Get("Content-Type") != contentType {
		return nil, fmt.Errorf("%s: %w", path, ErrUnknown)
	}
	if err := json.NewDecoder(resp.Body).Decode(&raw); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return raw, nil
}

// unanswered returns the error about a request that the socket at path did not answer.
func unanswered(path string, err error) error {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED) && !isSocket(path):
		return fmt.Errorf("%w %s: it is no socket", ErrNobody, path)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%w %s: %w", ErrNobody, path, ErrLeft)
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("%w %s", ErrNobody, path)
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%s is for the user who runs it: ask as that user, or by sudo: %w", path, os.ErrPermission)
	}
	return fmt.Errorf("%s: %w", path, err)
}

// errCutOff is wrapped by errors of Stream about a process that ended meanwhile.
var errCutOff = errors.New("the process there has ended")

// Stream makes the daemon at path execute a command, with an argument that is encoded as JSON. It
// copies the output of the command to w until the command ends or ctx is done, and returns the
// command's result.
func Stream(ctx context.Context, path, command string, argument any, w io.Writer) (json.RawMessage, error) {
	raw, err := json.Marshal(argument)
	if err == nil {
		err = answers(ctx, path)
	}
	var result json.RawMessage
	if err == nil {
		result, err = stream(ctx, path, "/command/"+command, raw, w)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", command, err)
	}
	return result, nil
}

func stream(ctx context.Context, path, what string, body []byte, w io.Writer) (json.RawMessage, error) {
	resp, err := send(ctx, path, http.MethodPost, what, body)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != streamType {
		raw, err := answer(path, resp)
		if err == nil {
			err = failed(path, raw)
		}
		return nil, err
	}
	if _, err := io.Copy(w, resp.Body); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = errCutOff
		}
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if text := resp.Trailer.Get(trailerError); text != "" {
		return nil, fmt.Errorf("%s: %w", path, &FailedError{text})
	}
	return json.RawMessage(resp.Trailer.Get(trailerResult)), nil
}
