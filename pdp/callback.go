package pdp

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/policy-service/policy-service/pdp/webhook"
)

// A notifier sends callbacks to PEPs.
type notifier struct {
	client *webhook.Client
	secret []byte
}

// newNotifier returns a notifier for URLs below the allowed ones. It calls an address that is not
// public only if an allowed URL contains that address literally.
func newNotifier(allowed []string, secret []byte, metrics *telemetry) (*notifier, error) {
	if len(allowed) > 0 && len(secret) == 0 {
		return nil, errors.New("callbacks need a secret to be signed with: name its file with --callback-secret")
	}
	client, err := webhook.New(webhook.Config{
		Allowed:   allowed,
		Transport: func(next http.RoundTripper) http.RoundTripper { return metrics.outgoing("call back", next) },
	})
	if err != nil {
		return nil, fmt.Errorf("callback URL: %w", err)
	}
	return &notifier{client, secret}, nil
}

// call posts a signed body to a PEP. It returns an error unless the status is 2xx.
func (c *notifier) call(ctx context.Context, endpoint string, body []byte) error {
	if err := c.client.PostSigned(ctx, endpoint, c.secret, body); err != nil {
		return fmt.Errorf("call back %s: %w", endpoint, err)
	}
	return nil
}
