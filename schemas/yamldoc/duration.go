package yamldoc

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"time"
)

var errDuration = errors.New("must be a duration with a unit, such as 500ms, 15m, 12h or 90d")

// A duration consists of numbers with units, as Go formats durations, and also days.
var (
	durationForm = regexp.MustCompile(`^(?:[0-9]+(?:\.[0-9]+)?(?:ns|us|µs|ms|s|m|h|d))+$`)
	durationPart = regexp.MustCompile(`([0-9]+(?:\.[0-9]+)?)(ns|us|µs|ms|s|m|h|d)`)
)

const day = 24 * time.Hour

// ParseDuration parses a duration of one or more numbers with a unit: ns, us, ms, s, m, h, or d for
// 24 hours. A duration is not negative. Only 0 may omit the unit.
func ParseDuration(text string) (time.Duration, error) {
	if text == "0" {
		return 0, nil
	}
	if !durationForm.MatchString(text) {
		return 0, fmt.Errorf("%w, not %s", errDuration, quoted(text))
	}
	var sum time.Duration
	for _, part := range durationPart.FindAllStringSubmatch(text, -1) {
		d, err := parsePart(part[1], part[2])
		if err != nil || sum > math.MaxInt64-d {
			return 0, fmt.Errorf("%w, not %s, which is too long", errDuration, quoted(text))
		}
		sum += d
	}
	return sum, nil
}

func parsePart(number, unit string) (time.Duration, error) {
	if unit != "d" {
		return time.ParseDuration(number + unit)
	}
	if days, err := strconv.ParseInt(number, 10, 64); err == nil && days <= int64(math.MaxInt64/day) {
		return time.Duration(days) * day, nil
	}
	days, err := strconv.ParseFloat(number, 64)
	if err != nil || days*float64(day) >= math.MaxInt64 {
		return 0, errDuration
	}
	return time.Duration(days * float64(day)), nil
}

// quoted returns a value for a message, truncated if long.
func quoted(text string) string {
	const most = 60
	if runes := []rune(text); len(runes) > most {
		text = string(runes[:most]) + "…"
	}
	return strconv.Quote(text)
}
