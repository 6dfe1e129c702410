package plain

import "strconv"

// Count returns a number with its noun: "1 entry", "2 entries".
func Count[N int | int64](n N, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.FormatInt(int64(n), 10) + " " + many
}
