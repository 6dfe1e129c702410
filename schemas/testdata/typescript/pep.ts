// What a PEP writes compiles against the types that openapi-typescript makes of
// the API.
import type { components, operations } from './api'

type Schemas = components['schemas']

export const request: Schemas['EvaluationRequest'] = {
  subject: { type: 'user', id: 'alice', properties: { department: 'sales', roles: ['agent'], level: 3 } },
  action: { name: 'tools/call', properties: { dry_run: true } },
  resource: { type: 'tool', id: 'crm:create', properties: { owner: { type: 'user', id: 'bob' } } },
  context: { supported_obligations: ['custom'], time: '2026-01-01T00:00:00Z', nested: { a: [1, null] } },
}

export const batch: Schemas['EvaluationsRequest'] = {
  subject: request.subject,
  context: { supported_obligations: ['custom'] },
  evaluations: [{ action: { name: 'read' }, resource: { type: 'doc', id: '1', properties: { secret: false } } }],
}

export const search: Schemas['ResourceSearchRequest'] = {
  subject: request.subject,
  action: request.action,
  resource: { type: 'tool' },
  context: { ip: '10.0.0.1' },
}

export const authorize: Schemas['AuthorizeRequest'] = {
  tenant_id: 'acme',
  actor: { actor_id: 'agent-1', actor_type: 'agent', roles: ['runner'] },
  action: 'tool.invoke',
  resource: { type: 'tool', id: 'jira:create', labels: { env: 'prod' } },
  context: { ticket: 'OPS-1' },
}

// A property of an obligation is read.
export function notified(decision: Schemas['Decision']): unknown[] {
  return (decision.context?.obligations ?? []).map((o) => o.properties['to'])
}

// @ts-expect-error a subject has an id
export const without: Schemas['EvaluationRequest'] = { ...request, subject: { type: 'user' } }

export type Operations = keyof operations
