package authzen

// Metadata describes a PDP (AuthZEN 1.0, "Policy Decision Point Metadata"). An
// endpoint that is not named does not exist; members without a value are
// omitted.
type Metadata struct {
	PolicyDecisionPoint       string   `json:"policy_decision_point"`
	AccessEvaluationEndpoint  string   `json:"access_evaluation_endpoint"`
	AccessEvaluationsEndpoint string   `json:"access_evaluations_endpoint,omitzero"`
	SearchSubjectEndpoint     string   `json:"search_subject_endpoint,omitzero"`
	SearchResourceEndpoint    string   `json:"search_resource_endpoint,omitzero"`
	SearchActionEndpoint      string   `json:"search_action_endpoint,omitzero"`
	AccessRequestEndpoint     string   `json:"access_request_endpoint,omitzero"` // Access Request Profile, "Discovery"
	CapabilityEndpoint        string   `json:"capability_endpoint,omitzero"`
	IntrospectionEndpoint     string   `json:"capability_introspection_endpoint,omitzero"`
	RevocationsEndpoint       string   `json:"capability_revocations_endpoint,omitzero"`
	JWKSURI                   string   `json:"jwks_uri,omitzero"` // keys of binding tokens and approvals
	Capabilities              []string `json:"capabilities,omitempty"`
	SupportedObligations      []string `json:"supported_obligations,omitempty"` // Obligations Profile, "Discovery"
}

// Paths of the API below the PDP's base URL (AuthZEN 1.0, "HTTPS JSON
// Binding"), and of its metadata, which stands before the base URL's path.
const (
	PathEvaluation     = "/access/v1/evaluation"
	PathEvaluations    = "/access/v1/evaluations"
	PathSearchSubject  = "/access/v1/search/subject"
	PathSearchResource = "/access/v1/search/resource"
	PathSearchAction   = "/access/v1/search/action"
	PathMetadata       = "/.well-known/authzen-configuration"
	PathRequests       = "/access/v1/requests"
	PathRequestSchemas = "/access/v1/schemas"
	PathJWKS           = "/access/v1/jwks"

	PathAuthorize = "/v1/authorize" // the tenant, actor, action, resource shape
	PathApprovals = "/v1/approvals" // the approval that such an answer asks for
)
