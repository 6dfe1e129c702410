package conformance

import "net/http"

// The modules of the OpenID Foundation's conformance suite.

// A sample is a request and what is demanded of its answer.
type sample struct {
	body string
	want demand
}

// common are the modules that every API has. another is the sample to which
// unknown members are added; again is demanded of three answers to base.
func common(a api, base, another sample, again demand) []row {
	refused := status(http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed)
	return []row{
		{"accept-content-type-with-charset", a.post(base.body).as("application/json;charset=utf-8"), base.want},
		{"x-request-id-echoed", a.post(base.body).tagged(), both(echoes, base.want)},
		{"idempotency", a.post(base.body).times(3), both(base.want, again)},
		{"unknown-top-level-fields-ignored", a.post("{" + unknown + "," + another.body[1:]), another.want},
		{"reject-get-method", a.post(base.body).by(http.MethodGet), refused},
		{"reject-put-method", a.post(base.body).by(http.MethodPut), refused},
		{"reject-top-level-array", a.post("[" + base.body + "]"), status(badRequest)},
		{"reject-non-json-content-type", a.post(base.body).as("text/plain"), status(badRequest, http.StatusUnsupportedMediaType)},
		{"reject-malformed-json", a.post(`{"subject": malformed`), status(badRequest)},
		{"reject-empty-body", a.post(""), status(badRequest)},
	}
}

// modules names the rows as the suite names the modules of an API.
func modules(a api, rows ...[]row) []row {
	var out []row
	for _, part := range rows {
		for _, r := range part {
			r.name = "authzen-pdp-" + a.name + "-" + r.name
			out = append(out, r)
		}
	}
	return out
}

// evaluationModules is the plan authzen-pdp-evaluation-test-plan with
// authzen_support=properties.
func evaluationModules(t Target) []row {
	base := sample{aliceReads, decides(true)}
	rows := modules(evaluation,
		common(evaluation, base, base, decides(true)), evaluationDecisions, evaluationRefusals, evaluationUnknownFields)
	if t.Authorization != "" {
		rows = append(rows, modules(evaluation, evaluationCredentials)...)
	}
	return rows
}

var evaluationDecisions = []row{
	{"fixture-request-permit-decision", evaluation.post(aliceReads), decides(true)},
	{"fixture-request-deny-decision", evaluation.post(bobWrites), decides(false)},
	{"request-with-optional-context", evaluation.post(join(alice, read, record1, context)), decides(true)},
	{"request-with-additional-properties", evaluation.post(additionalProperties), decides(true)},
	{"fixture-request-deny-based-on-properties", evaluation.post(join(alice, write, archived2)), decides(false)},
	{"fixture-request-permit-based-on-subject-properties", evaluation.post(join(admin, write, archived2)), decides(true)},
	{"fixture-request-permit-based-on-action-properties", evaluation.post(join(alice, soft, record1)), decides(true)},
	{"fixture-request-deny-based-on-action-properties", evaluation.post(join(alice, hard, record1)), decides(false)},
}

var evaluationRefusals = []row{
	{"missing-subject", evaluation.post(join(read, record1)), status(badRequest)},
	{"missing-action", evaluation.post(join(alice, record1)), status(badRequest)},
	{"missing-resource", evaluation.post(join(alice, read)), status(badRequest)},
	{"subject-missing-type", evaluation.post(join(`"subject":{"id":"alice"}`, read, record1)), status(badRequest)},
	{"subject-missing-id", evaluation.post(join(`"subject":{"type":"user"}`, read, record1)), status(badRequest)},
	{"action-missing-name", evaluation.post(join(alice, `"action":{}`, record1)), status(badRequest)},
	{"resource-missing-type", evaluation.post(join(alice, read, `"resource":{"id":"record-1"}`)), status(badRequest)},
	{"resource-missing-id", evaluation.post(join(alice, read, `"resource":{"type":"record"}`)), status(badRequest)},
	{"subject-is-string", evaluation.post(join(`"subject":"alice"`, read, record1)), status(badRequest)},
	{"action-name-is-number", evaluation.post(join(alice, `"action":{"name":123}`, record1)), status(badRequest)},
}

var evaluationUnknownFields = []row{
	{"unknown-subject-fields-ignored", evaluation.post(
		join(`"subject":{"type":"user","id":"alice","customAttr":"x","anotherUnknown":{"nested":1}}`, read, record1)), decides(true)},
	{"unknown-action-fields-ignored", evaluation.post(
		join(alice, `"action":{"name":"read","customAttr":"x"}`, record1)), decides(true)},
	{"unknown-resource-fields-ignored", evaluation.post(
		join(alice, read, `"resource":{"type":"record","id":"record-1","customAttr":"x","anotherUnknown":[1,2,3]}`)), decides(true)},
}

var evaluationCredentials = []row{
	{"missing-credentials-returns-401", evaluation.post(aliceReads).authorized(none), unauthorized},
	{"invalid-credentials-returns-401", evaluation.post(aliceReads).authorized(bogus), unauthorized},
}

// evaluationsModules is the plan authzen-pdp-evaluations-test-plan with
// authzen_support=properties.
func evaluationsModules() []row {
	base := sample{aliceReadsBoth, batch(true, true)}
	another := sample{bobReadsAndWrites, batch(true, false)}
	return modules(evaluations,
		common(evaluations, base, another, same),
		evaluationsDecisions, evaluationsSemantics, evaluationsProperties)
}

var evaluationsDecisions = []row{
	{"batch-request-with-evaluations-array", evaluations.post(aliceReadsBoth), batch(true, true)},
	{"batch-with-fixture-decisions-validated", evaluations.post(bobReadsAndWrites), batch(true, false)},
	{"batch-with-fully-specified-evaluations", evaluations.post(fullySpecified), batch(true, false)},
	{"batch-with-context-inheritance", evaluations.post(contextInherited), batch(true, true)},
	{"evaluation-level-errors", evaluations.post(join(alice, read, items(join(record1), `{}`))), batch(true, false)},
	{"missing-subject-returns-decision-false", evaluations.post(join(read, items(join(record1)))), batch(false)},
	{"per-eval-overrides-default", evaluations.post(join(bob, write, record1, items(join(read), `{}`))), batch(true, false)},
	{"missing-evaluations-array-backward-compat", evaluations.post(aliceReads), single(true)},
	{"empty-evaluations-array-backward-compat", evaluations.post(join(alice, read, record1, items())), single(true)},
}

var evaluationsSemantics = []row{
	{"default-semantic-is-execute-all", evaluations.post(bobReadsAndWrites), batch(true, false)},
	{"execute-all-explicit", evaluations.post(join(options, bob, record1, items(join(read), join(write)))), batch(true, false)},
	{"deny-on-first-deny", evaluations.post(join(bob, record1, items(join(read), join(write), join(read)),
		`"options":{"evaluations_semantic":"deny_on_first_deny"}`)), batch(true, false)},
	{"permit-on-first-permit", evaluations.post(join(bob, record1, items(join(write), join(read), join(write)),
		`"options":{"evaluations_semantic":"permit_on_first_permit"}`)), batch(false, true)},
	{"unknown-semantic-value", evaluations.post(join(bob, record1, items(join(read), join(write)),
		`"options":{"evaluations_semantic":"bogus_value"}`)), status(badRequest)},
}

var evaluationsProperties = []row{
	{"batch-with-properties-validated", evaluations.post(join(alice, write, items(join(active1), join(archived2)))), batch(true, false)},
	{"batch-with-subject-properties-validated", evaluations.post(join(write, archived2, items(join(alice), join(admin)))), batch(false, true)},
	{"batch-with-default-value-merging", evaluations.post(typeInherited), batch(true, false)},
}
