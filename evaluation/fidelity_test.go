package evaluation_test

import "testing"

// What cedar-go computes otherwise than the official engine, as that does.
func TestRepairs(t *testing.T) {
	const midnight, day = `datetime("1969-12-31")`, `duration("1d")`
	tests := []struct {
		expression string
		errs       bool // else it is true
	}{
		{`datetime("1969-12-31T12:00:00Z").toDate() == ` + midnight, false},
		{midnight + `.toDate() == ` + midnight, false},
		{`datetime("1970-01-01T12:00:00Z").toDate() == datetime("1970-01-01")`, false},
		{`datetime("1969-12-31T12:00:00Z").toTime() == duration("12h")`, false},
		{midnight + `.toTime() == duration("0ms")`, false},
		{`datetime("1969-12-31T23:59:59.999Z").toTime() < ` + day, false},
		{`datetime("1970-01-01").offset(duration("-4611686018371200000ms")).toDate() < datetime("0001-01-01")`, false},
		{`datetime("1970-01-01").offset(duration("4611686018371200000ms")).toDate() > datetime("9999-12-31")`, false},
		{`datetime("1970-01-01").offset(duration("-9223372036854775807ms")).toDate() == datetime("1970-01-01")`, true},
		{`datetime("1970-01-01").offset(duration("9223372036854775807ms")).toDate() == datetime("1970-01-01")`, true},
		{`decimal("+1.0") == decimal("1.0")`, true},
		{`decimal(context.text) == decimal("1.0")`, true},
		{`decimal("-1.0").lessThan(decimal("1.0"))`, false},
	}
	for _, test := range tests {
		s := compile(t, `@id("p") permit (principal, action, resource) when { `+test.expression+` };`)
		out := s.decide(question("user a", "read", "doc 1", `{"text":"+1.0"}`))
		if out.Decision == test.errs || (len(out.Errors) > 0) != test.errs {
			t.Errorf("%s: decided %t, errors %v", test.expression, out.Decision, out.Errors)
		}
	}
}
