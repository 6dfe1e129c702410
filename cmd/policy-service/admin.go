package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/pdp"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// apiKeyVariable is the environment variable with the API key for a server with auth.
const apiKeyVariable = "POLICY_SERVICE_API_KEY"

// adminURL returns the URL of the admin listener of the server that has state open.
func adminURL(state string) (string, error) {
	url, err := os.ReadFile(filepath.Join(state, pdp.AdminURLFile))
	if err != nil {
		return "", fmt.Errorf("no server is known to run on %s: %w", state, err)
	}
	return strings.TrimSpace(string(url)), nil
}

// adminFlags are the flags of a command that asks the admin listener.
type adminFlags struct {
	Admin string `help:"URL of the admin listener. Default: the listener of the server on --state." placeholder:"URL"`
	State string `help:"State directory of the running server. Default: ${default}." default:"policy-service-state" placeholder:"DIR"`
	JSON  bool   `name:"json" help:"Print JSON."`
}

// ask sends a request to the admin listener and reads its answer.
func (f *adminFlags) ask(ctx context.Context, method, path string, body, answer any) error {
	base := f.Admin
	if base == "" {
		found, err := adminURL(f.State)
		if err != nil {
			return err
		}
		base = found
	}
	var content []byte
	if body != nil {
		var err error
		if content, err = json.Marshal(body); err != nil {
			return fmt.Errorf("encode: %w", err)
		}
	}
	response, err := askURL(ctx, method, strings.TrimSuffix(base, "/")+path, content)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK && response.StatusCode != http.StatusCreated {
		return refusal(response)
	}
	if err := json.UnmarshalRead(response.Body, answer); err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	return nil
}

// askAdmin sends a request to the admin listener of the server that has state open.
func askAdmin(ctx context.Context, state, method, path string) (*http.Response, error) {
	url, err := adminURL(state)
	if err != nil {
		return nil, err
	}
	return askURL(ctx, method, url+path, nil)
}

// askURL sends a request to a running server. A body is JSON.
func askURL(ctx context.Context, method, url string, body []byte) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if key := os.Getenv(apiKeyVariable); key != "" {
		request.Header.Set("Authorization", "Bearer "+key)
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("the running server does not answer: %w", err)
	}
	return response, nil
}

// holder sends a request to the server that has the log in state open.
func holder(ctx context.Context, state, method, path string) (io.ReadCloser, error) {
	response, err := heldBy(ctx, state, method, path)
	if err != nil {
		return nil, err
	}
	return response.Body, nil
}

// heldBy is holder, and returns the whole answer.
func heldBy(ctx context.Context, state, method, path string) (*http.Response, error) {
	response, err := askAdmin(ctx, state, method, path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", decisionlog.ErrLocked, err)
	}
	if response.StatusCode == http.StatusOK {
		return response, nil
	}
	defer response.Body.Close()
	return nil, refusal(response)
}

// refusal returns the error in the server's answer.
func refusal(response *http.Response) error {
	var answer authzen.ErrorResponse
	if err := json.UnmarshalRead(response.Body, &answer); err != nil {
		return fmt.Errorf("the running server answered %s", response.Status)
	}
	if response.StatusCode == http.StatusUnprocessableEntity {
		return &decisionlog.IntegrityError{Index: -1, Reason: "does not prove it: " + answer.Error.Message}
	}
	err := fmt.Errorf("refused by the running server: %s", answer.Error.Message)
	if response.StatusCode == http.StatusUnauthorized {
		err = fmt.Errorf("%w (%s has the API key)", err, apiKeyVariable)
	}
	return err
}
