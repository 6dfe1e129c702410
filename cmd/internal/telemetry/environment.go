package telemetry

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/policy-service/policy-service/cmd/internal/environment"
	"github.com/policy-service/policy-service/schemas/yamldoc"
)

// supported has the values of variables of OpenTelemetry that we follow; "" is
// one of each.
var supported = map[string][]string{
	"OTEL_SDK_DISABLED":                   {"true", "false"},
	"OTEL_PROPAGATORS":                    {"tracecontext", "tracecontext,baggage", "baggage,tracecontext"},
	"OTEL_TRACES_EXPORTER":                {"otlp", "none"},
	"OTEL_METRICS_EXPORTER":               {"otlp", "none", "prometheus"},
	"OTEL_LOGS_EXPORTER":                  {"none"},
	"OTEL_EXPORTER_OTLP_PROTOCOL":         {"http/protobuf"},
	"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL":  {"http/protobuf"},
	"OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": {"http/protobuf"},
	"OTEL_EXPORTER_OTLP_LOGS_PROTOCOL":    {"http/protobuf"},
	"OTEL_TRACES_SAMPLER": {
		"always_on", "always_off", "traceidratio", "parentbased_always_on", "parentbased_always_off", "parentbased_traceidratio",
	},
	"OTEL_CONFIG_FILE":              {},
	"OTEL_EXPERIMENTAL_CONFIG_FILE": {},
}

// names are variables of OpenTelemetry that its SDKs read, whatever
// they say; those of a signal have its name behind OTLP.
var names = []string{
	"OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES", "OTEL_TRACES_SAMPLER_ARG", "OTEL_EXPORTER_OTLP_ENDPOINT",
	"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT",
	"OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TIMEOUT", "OTEL_EXPORTER_OTLP_COMPRESSION", "OTEL_EXPORTER_OTLP_CERTIFICATE",
	"OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "OTEL_EXPORTER_OTLP_CLIENT_KEY", "OTEL_METRIC_EXPORT_INTERVAL", "OTEL_METRIC_EXPORT_TIMEOUT",
	"OTEL_BSP_SCHEDULE_DELAY", "OTEL_BSP_EXPORT_TIMEOUT", "OTEL_BSP_MAX_QUEUE_SIZE", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE",
	"OTEL_BLRP_SCHEDULE_DELAY", "OTEL_BLRP_EXPORT_TIMEOUT", "OTEL_BLRP_MAX_QUEUE_SIZE", "OTEL_BLRP_MAX_EXPORT_BATCH_SIZE",
}

// Check reports every variable of OpenTelemetry that we do not
// follow, by its value or because its name is nearly that of another. Of other
// names there are many that other programs follow.
func Check(variables []string) error {
	known := slices.Clone(names)
	for name := range supported {
		known = append(known, name)
	}
	var errs []error
	for _, variable := range slices.Sorted(slices.Values(variables)) {
		name, value, _ := strings.Cut(variable, "=")
		values, listed := supported[name]
		switch {
		case value == "" || !strings.HasPrefix(name, "OTEL_"):
		case listed && !slices.Contains(values, strings.ToLower(value)):
			wanted := cmp.Or(strings.Join(values, " or "), "nothing")
			errs = append(errs, fmt.Errorf("the environment variable %s says %q, which is not followed: want %s", name, value, wanted))
		case !listed && !slices.Contains(known, name) && yamldoc.Nearest(name, known, 2) != "":
			errs = append(errs, fmt.Errorf("the environment variable %s is none of OpenTelemetry%s", name, environment.Meant(name, known)))
		}
	}
	return errors.Join(errs...)
}

// isDisabled reports whether the environment wants no telemetry sent.
func isDisabled() bool { return strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") }
