package gateway

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/pdp/client"
	"github.com/policy-service/policy-service/schemas/authzen"
)

type obligationsConfig struct {
	NotificationURL string `yaml:"notification_url"`
}

// notificationTimeout bounds the wait for the receiver of a notification to
// confirm it.
const notificationTimeout = 5 * time.Second

// handlers are the obligations that the gateway carries out: those on results, and
// others where they are configured.
func (c *obligationsConfig) handlers() client.Obligations {
	all := client.Obligations{authzen.ObligationCustom: enforce.OnResult}
	if c.NotificationURL != "" {
		sender := &http.Client{Timeout: notificationTimeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
		all[authzen.ObligationNotification] = func(ctx context.Context, o authzen.Obligation) error {
			return notify(ctx, sender, c.NotificationURL, o)
		}
	}
	return all
}

// notify posts an obligation, in the form of whichever draft it has. Whoever is
// notified has to say so; who cannot be told from it is not.
func notify(ctx context.Context, sender *http.Client, url string, o authzen.Obligation) error {
	var said authzen.NotificationObligation
	if err := json.Unmarshal(o.Properties, &said); err != nil || len(said.To) == 0 {
		return fmt.Errorf("the notification obligation has no recipient: %s", o.Properties)
	}
	body, err := json.Marshal(o)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	response, err := sender.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode/100 != 2 {
		return fmt.Errorf("the notification endpoint answered %d", response.StatusCode)
	}
	return nil
}
