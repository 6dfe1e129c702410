package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

type healthcheckCmd struct {
	State string `help:"State directory of the running server. Default: ${default}." default:"policy-service-state" placeholder:"DIR"`
}

// healthPatience is the time in which a healthy server answers.
const healthPatience = 2 * time.Second

// Run succeeds if the server is ready. It is for containers without another program
// for this.
func (c *healthcheckCmd) Run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, healthPatience)
	defer cancel()
	response, err := askAdmin(ctx, c.State, http.MethodGet, "/readyz?verbose")
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 1<<10)) // what there is of it
		return fmt.Errorf("not ready: %s", text)
	}
	return printLines(os.Stdout, func(w io.Writer) error { _, err := io.Copy(w, response.Body); return err })
}
