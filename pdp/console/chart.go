package console

import (
	"fmt"
	"time"
)

// Measures of the chart, in the units of its picture.
const (
	chartWidth  = 820
	chartLeft   = 64
	chartTop    = 24
	chartBottom = 120
)

// A chart shows decisions by minute as bars.
type chart struct {
	Bars   []bar
	Lines  []chartLine
	Times  []chartTime
	Label  string      // says in words what the bars show
	Points []ratePoint // minutes with decisions or failures, the newest first
}

// A bar has the decisions of a minute: the permits below, the denials above them.
type bar struct {
	X, Width               string
	AllowedY, AllowedH     string
	DeniedY, DeniedH       string
	HasAllowed, HasDenied  bool
	HasErrors              bool
	Time                   time.Time
	Allowed, Denied, Error int64
}

type chartLine struct {
	Y     string
	TextY string
	Value int64
}

type chartTime struct {
	X    string
	Time time.Time
}

// newChart returns the chart of the last hour.
func newChart(points []ratePoint) *chart {
	top := scale(points)
	c := &chart{Label: describeHour(points)}
	step := float64(chartWidth-chartLeft) / float64(max(len(points), 1))
	height := func(n int64) float64 { return float64(chartBottom-chartTop) * float64(n) / float64(top) }
	for i, p := range points {
		allowed, denied := height(p.Allowed), height(p.Denied)
		if p.Denied > 0 {
			denied = max(denied, 1.5)
		}
		c.Bars = append(c.Bars, bar{
			X: number(chartLeft + float64(i)*step + step*0.12), Width: number(step * 0.76),
			AllowedY: number(chartBottom - allowed), AllowedH: number(allowed), DeniedY: number(chartBottom - allowed - denied), DeniedH: number(denied),
			HasAllowed: p.Allowed > 0, HasDenied: p.Denied > 0, HasErrors: p.Errors > 0, Time: p.Time,
		})
		if i%20 == 0 {
			c.Times = append(c.Times, chartTime{number(chartLeft + float64(i)*step), p.Time})
		}
	}
	for _, part := range []int64{0, 1, 2} {
		y := chartBottom - float64(chartBottom-chartTop)*float64(part)/2
		c.Lines = append(c.Lines, chartLine{number(y), number(y + 4), top * part / 2})
	}
	for i := len(points) - 1; i >= 0; i-- {
		if points[i].all()+points[i].Errors > 0 {
			c.Points = append(c.Points, points[i])
		}
	}
	return c
}

func number(f float64) string { return fmt.Sprintf("%.1f", f) }

// scale returns a round number of decisions that no minute exceeds.
func scale(points []ratePoint) int64 {
	most := int64(2)
	for _, p := range points {
		most = max(most, p.all())
	}
	for round := int64(1); ; round *= 10 {
		for _, times := range []int64{2, 4, 6, 10} {
			if round*times >= most {
				return round * times
			}
		}
	}
}

// describeHour says in words what the chart shows.
func describeHour(points []ratePoint) string {
	var allowed, denied, failed, peak int64
	var at time.Time
	for _, p := range points {
		allowed, denied, failed = allowed+p.Allowed, denied+p.Denied, failed+p.Errors
		if p.all() > peak {
			peak, at = p.all(), p.Time
		}
	}
	if peak == 0 && failed == 0 {
		return "No decisions in the last hour."
	}
	text := fmt.Sprintf("Decisions by minute in the last hour: %d allowed, %d denied, %d failed.", allowed, denied, failed)
	if peak > 0 {
		text += fmt.Sprintf(" The most in a minute were %d, at %s UTC.", peak, at.UTC().Format("15:04"))
	}
	return text
}
