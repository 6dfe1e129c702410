//go:build linux

package main

import (
	"fmt"
	"math"
	"slices"
)

// A summary is the median of one figure over the rounds, its quartiles, and
// between which values the true median lies with a confidence of 95 percent.
type summary struct {
	Median float64 `json:"median"`
	Q1     float64 `json:"q1"`
	Q3     float64 `json:"q3"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
}

func summarize(figures []float64) summary {
	sorted := slices.Sorted(slices.Values(figures))
	i := medianRank(len(sorted))
	return summary{
		Median: quantile(sorted, 0.5), Q1: quantile(sorted, 0.25), Q3: quantile(sorted, 0.75),
		Low: sorted[i], High: sorted[len(sorted)-1-i],
	}
}

// String is the median, and half the distance of the quartiles as a share of it
// where there is one.
func (s summary) String() string {
	if s.Median == 0 {
		return "–"
	}
	decimals := max(0, 2-int(math.Floor(math.Log10(s.Median))))
	text := fmt.Sprintf("%.*f", decimals, s.Median)
	if s.Q1 < s.Q3 {
		text += fmt.Sprintf(" ±%.0f %%", 50*(s.Q3-s.Q1)/s.Median)
	}
	return text
}

// quantile interpolates between two of the sorted figures.
func quantile(sorted []float64, q float64) float64 {
	at := q * float64(len(sorted)-1)
	i := int(at)
	if i+1 == len(sorted) {
		return sorted[i]
	}
	return sorted[i] + (at-float64(i))*(sorted[i+1]-sorted[i])
}

// medianRank is how many of n sorted figures may be left out at either end so
// that the rest holds the true median with a confidence of 95 percent. Of fewer
// than six figures all are needed, and the confidence is less.
func medianRank(n int) int {
	rank, below, chance := -1, 0.0, math.Pow(0.5, float64(n))
	for below+chance <= 0.025 {
		below += chance
		rank++
		chance *= float64(n-rank) / float64(rank+1)
	}
	return max(rank, 0)
}

// ratios divides figures of the same rounds.
func ratios(a, b []float64) []float64 {
	all := make([]float64, len(a))
	for i := range a {
		all[i] = a[i] / b[i]
	}
	return all
}
