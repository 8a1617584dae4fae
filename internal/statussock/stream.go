package statussock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

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
		return nil, fmt.Errorf("%s: %s", path, text)
	}
	return json.RawMessage(resp.Trailer.Get(trailerResult)), nil
}
