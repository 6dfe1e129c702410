package main

import (
	"context"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/policy-service/policy-service/cmd/internal/telemetry"
	"github.com/policy-service/policy-service/pdp"
)

// service is the name of this program in its telemetry.
const service = "policy-service"

// newTelemetry opens the telemetry of the service. The caller ends it. The page
// of metrics names tenants to strangers only if nameTenants is set.
func newTelemetry(ctx context.Context, nameTenants bool) (pdp.Telemetry, func(context.Context) error, error) {
	t, err := telemetry.Open(ctx, service, version)
	if err != nil {
		return pdp.Telemetry{}, nil, err
	}
	out := pdp.Telemetry{Traces: t.Traces, Meters: t.Meters, Page: promhttp.HandlerFor(t.Page, promhttp.HandlerOpts{})}
	if out.PublicPage = out.Page; !nameTenants {
		out.PublicPage = promhttp.HandlerFor(anonymous{t.Page}, promhttp.HandlerOpts{})
	}
	return out, t.Close, nil
}
