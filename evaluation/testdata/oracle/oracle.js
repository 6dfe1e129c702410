// The official engine, asked over pipes: one case a line on standard input,
// one answer a line on standard output.
//
// A case is {policies: {id: text}, schema, entities, requests: [{principal,
// action, resource, context, entities}]}; a request's entities stand in for
// those of the case. An answer is {fault} when the store is not accepted, and
// otherwise {answers: [{fault} or {decision, reasons, errors}]}.
import { createInterface } from "node:readline";
import { createRequire } from "node:module";

const cedar = createRequire(import.meta.url)("@cedar-policy/cedar-wasm/nodejs");

for await (const line of createInterface({ input: process.stdin })) {
  process.stdout.write(JSON.stringify(ask(JSON.parse(line))) + "\n");
}

function ask({ policies, schema, entities, requests }) {
  const fault =
    failure(cedar.preparsePolicySet("case", { staticPolicies: policies })) ??
    (schema && failure(cedar.preparseSchema("case", schema))) ??
    failure(cedar.checkParseEntities({ entities, schema })) ??
    (schema && invalid(cedar.validate({ schema, policies: { staticPolicies: policies } })));
  if (fault) return { fault };
  return { answers: requests.map((request) => answer(request, entities, schema)) };
}

function answer(request, stored, schema) {
  const given = cedar.statefulIsAuthorized({
    ...request,
    entities: request.entities ?? stored,
    preparsedPolicySetId: "case",
    ...(schema && { preparsedSchemaName: "case", validateRequest: true }),
  });
  const fault = failure(given);
  if (fault) return { fault };
  const { decision, diagnostics } = given.response;
  return { decision, reasons: diagnostics.reason, errors: diagnostics.errors.map((e) => e.policyId) };
}

function failure({ type, errors }) {
  return type === "failure" ? errors.map((e) => e.message).join("; ") : undefined;
}

function invalid(validation) {
  return failure(validation) ?? (validation.validationErrors.map((e) => e.error.message).join("; ") || undefined);
}
