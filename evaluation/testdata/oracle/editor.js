// What the official editor extension does with the files of a policy store: it
// parses, validates and formats them. One store on standard input, as {files:
// {name: text}, schema}; {fault} or {formatted: {name: text}} on standard
// output.
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";

const cedar = createRequire(import.meta.url)("@cedar-policy/cedar-wasm/nodejs");
const { files, schema } = JSON.parse(readFileSync(0, "utf8"));

process.stdout.write(JSON.stringify(edit()));

function edit() {
  const formatted = {};
  for (const [name, policyText] of Object.entries(files)) {
    const problem = fault(cedar.checkParsePolicySet({ staticPolicies: policyText })) ?? invalid(policyText);
    if (problem) return { fault: `${name}: ${problem}` };
    const answer = cedar.formatPolicies({ policyText });
    if (answer.type === "failure") return { fault: `${name}: ${fault(answer)}` };
    formatted[name] = answer.formatted_policy;
  }
  return { formatted };
}

function invalid(staticPolicies) {
  if (!schema) return undefined;
  const answer = cedar.validate({ schema, policies: { staticPolicies } });
  return fault(answer) ?? (answer.validationErrors.map((e) => e.error.message).join("; ") || undefined);
}

function fault({ type, errors }) {
  return type === "failure" ? errors.map((e) => e.message).join("; ") : undefined;
}
