package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/policy-service/policy-service/cmd/internal/environment"
	"github.com/policy-service/policy-service/schemas/yamldoc"
)

// variablePrefix begins the names of the environment variables that are ours.
const variablePrefix = "POLICY_SERVICE_"

// checkEnvironment reports every variable with our prefix that names nothing.
func checkEnvironment(app *kong.Application, variables []string) error {
	return environment.Check(app, variablePrefix, []string{apiKeyVariable}, variables)
}

// notInSet is what kong says of a value that is none of a flag's.
var notInSet = regexp.MustCompile(`must be one of (.+) but got "(.*)"`)

// enumHint says which value of a closed set was meant, or "".
func enumHint(err error) string {
	found := notInSet.FindStringSubmatch(err.Error())
	if found == nil {
		return ""
	}
	var known []string
	for value := range strings.SplitSeq(found[1], ",") {
		if value = strings.Trim(value, `" `); value != "" {
			known = append(known, value)
		}
	}
	return environment.Meant(found[2], known)
}

// openTelemetry are the values of variables of OpenTelemetry that we follow; "" is
// one of each.
var openTelemetry = map[string][]string{
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

// openTelemetryNames are variables of OpenTelemetry that its SDKs read, whatever
// they say; those of a signal have its name behind OTLP.
var openTelemetryNames = []string{
	"OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES", "OTEL_TRACES_SAMPLER_ARG", "OTEL_EXPORTER_OTLP_ENDPOINT",
	"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT",
	"OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TIMEOUT", "OTEL_EXPORTER_OTLP_COMPRESSION", "OTEL_EXPORTER_OTLP_CERTIFICATE",
	"OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "OTEL_EXPORTER_OTLP_CLIENT_KEY", "OTEL_METRIC_EXPORT_INTERVAL", "OTEL_METRIC_EXPORT_TIMEOUT",
	"OTEL_BSP_SCHEDULE_DELAY", "OTEL_BSP_EXPORT_TIMEOUT", "OTEL_BSP_MAX_QUEUE_SIZE", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE",
	"OTEL_BLRP_SCHEDULE_DELAY", "OTEL_BLRP_EXPORT_TIMEOUT", "OTEL_BLRP_MAX_QUEUE_SIZE", "OTEL_BLRP_MAX_EXPORT_BATCH_SIZE",
}

// checkOpenTelemetry reports every variable of OpenTelemetry that we do not
// follow, by its value or because its name is nearly that of another. Of other
// names there are many that other programs follow.
func checkOpenTelemetry(variables []string) error {
	known := slices.Clone(openTelemetryNames)
	for name := range openTelemetry {
		known = append(known, name)
	}
	var errs []error
	for _, variable := range slices.Sorted(slices.Values(variables)) {
		name, value, _ := strings.Cut(variable, "=")
		values, listed := openTelemetry[name]
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

// telemetryDisabled reports whether the environment wants no telemetry sent.
func telemetryDisabled() bool { return strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") }
