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

// healthPatience is how long a healthy server may take to say so.
const healthPatience = 2 * time.Second

// Run ends without an error if the server is ready, for containers that have no
// other program to ask it.
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
