package main

import (
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/proto"
)

// anonymous gathers metrics without the labels that name tenants or policies, because
// a policy's name may show its tenant. It adds up counters that differ only in such
// labels. No other type of metric has them.
type anonymous struct{ from prometheus.Gatherer }

func (a anonymous) Gather() ([]*dto.MetricFamily, error) {
	families, err := a.from.Gather()
	for _, family := range families {
		if slices.ContainsFunc(family.Metric, names) {
			family.Metric = addedUp(family.Metric)
		}
	}
	families = slices.DeleteFunc(families, func(f *dto.MetricFamily) bool { return len(f.Metric) == 0 })
	return families, err
}

// names reports whether a label of a metric names a tenant or a policy.
func names(m *dto.Metric) bool { return slices.ContainsFunc(m.Label, naming) }

func naming(l *dto.LabelPair) bool { return l.GetName() == "tenant" || l.GetName() == "policy" }

// addedUp returns the sums of counters over the labels that name tenants or policies.
// It omits other types.
func addedUp(all []*dto.Metric) []*dto.Metric {
	var sums []*dto.Metric
	byLabels := make(map[string]*dto.Metric)
	for _, m := range all {
		if m.Counter == nil {
			continue
		}
		labels := slices.DeleteFunc(slices.Clone(m.Label), naming)
		var key strings.Builder
		for _, l := range labels {
			key.WriteString(l.GetName() + "\x00" + l.GetValue() + "\x00")
		}
		sum := byLabels[key.String()]
		if sum == nil {
			sum = &dto.Metric{Label: labels, Counter: &dto.Counter{Value: proto.Float64(0)}}
			byLabels[key.String()], sums = sum, append(sums, sum)
		}
		*sum.Counter.Value += m.Counter.GetValue()
	}
	return sums
}
